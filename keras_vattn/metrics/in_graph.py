"""Implement `predictive_entropy` and `mutual_information` with TensorFlow operations, so that they run in graphs."""

import tensorflow as tf


def predictive_statistics(draws):
    """Return statistics of sampled probabilities (S, ..., C), a dictionary of tensors: `"mean"` (..., C), and the
    predictive `"entropy"` and the `"mutual_information"`, (...), in nats."""
    mean = tf.reduce_mean(draws, axis=0)
    total = entropy(mean)
    information = tf.maximum(total - tf.reduce_mean(entropy(draws), axis=0), 0.0)
    return {"mean": mean, "entropy": total, "mutual_information": information}


def entropy(probabilities):
    """Return the entropy over the last axis, in nats, as a tensor."""
    # Subtract from 0, because a negation would give -0.0, which prints as "-0.0".
    return 0.0 - tf.reduce_sum(tf.math.xlogy(probabilities, probabilities), axis=-1)
