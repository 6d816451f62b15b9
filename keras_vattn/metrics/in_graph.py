"""`predictive_entropy` and `mutual_information` for tensors."""

import tensorflow as tf


def predictive_statistics(draws):
    """Return a dictionary of tensors: the mean of draws of probabilities (S, ..., C), and the entropy and the mutual
    information of the prediction (...), in nats."""
    mean = tf.reduce_mean(draws, axis=0)
    total = entropy(mean)
    information = tf.maximum(total - tf.reduce_mean(entropy(draws), axis=0), 0.0)
    return {"mean": mean, "entropy": total, "mutual_information": information}


def entropy(probabilities):
    """Return the entropy (nats) along the last axis, a tensor."""
    # The subtraction from 0 avoids -0.0, which is printed with its sign.
    return 0.0 - tf.reduce_sum(tf.math.xlogy(probabilities, probabilities), axis=-1)
