"""Implement `predictive_entropy` and `mutual_information` with TensorFlow operations, so that they run in graphs."""

import tensorflow as tf


def predictive_statistics(draws):
    """Return the mean, entropy and mutual information of sampled probabilities (S, ..., C), in nats."""
    mean = tf.reduce_mean(draws, axis=0)
    total = entropy(mean)
    information = tf.maximum(total - tf.reduce_mean(entropy(draws), axis=0), 0.0)
    return {"mean": mean, "entropy": total, "mutual_information": information}


def entropy(probabilities):
    """Return the entropy over the last axis, in nats."""
    # A negation would return -0.0 for an entropy of 0.
    return 0.0 - tf.reduce_sum(tf.math.xlogy(probabilities, probabilities), axis=-1)
