"""Compute and sample categorical alignments in log space, in float32."""

import tensorflow as tf
from keras import ops

from keras_vattn import random

# Replaces log 0. With -inf, 0 * log 0 and log 0 - log 0 would be NaN.
LOG_ZERO = -1e30


def log_probabilities(logits, keys):
    """Return log softmax over the valid keys, float32 (B, T, S), with `LOG_ZERO` at masked keys.

    Args:
        logits: (B, T, S).
        keys: A `keras_vattn.DenseKeys`.
    """
    # Without `maximum`, a valid key with a logit of -inf would stay -inf.
    return keys.where_valid(ops.maximum(keys.log_softmax(logits), LOG_ZERO), LOG_ZERO)


def is_possible(log_probability):
    """Return a boolean tensor, `True` where a log probability belongs to an unmasked key."""
    return log_probability > 0.5 * LOG_ZERO


def without_empty_rows(log_weights):
    """Return log weights (B, T, K), with uniform weights in rows whose candidates are all masked."""
    possible = ops.any(is_possible(log_weights), axis=-1, keepdims=True)
    return ops.where(possible, log_weights, -ops.log(ops.cast(ops.shape(log_weights)[-1], log_weights.dtype)))


def draw(log_probability, num_samples, seed):
    """Sample indices, int64 (B, T, num_samples), independently from categorical distributions (B, T, S)."""
    batch_size, num_queries, num_keys = ops.shape(log_probability)
    noise = random.gumbel((batch_size, num_queries, num_samples, num_keys), seed)
    # `keras.ops.argmax` would be slower.
    return tf.argmax(log_probability[:, :, None] + noise, axis=-1)


def gather_entries(x, index):
    """Return x[b, t, index[b, t, k]], (B, T, K), for x (B, T, S) and int64 indices (B, T, K)."""
    return tf.gather(x, index, batch_dims=2)


def most_probable(log_probability, top_k):
    """Return the indices of the K = min(top_k, S) most probable keys, int64 (B, T, K), from (B, T, S)."""
    num_keys = ops.shape(log_probability)[-1]
    count = min(top_k, num_keys) if isinstance(num_keys, int) else tf.minimum(top_k, num_keys)
    return tf.cast(tf.math.top_k(log_probability, count).indices, tf.int64)


def renormalised(log_probability):
    """Return normalised log probabilities (B, T, K). Masked keys keep `LOG_ZERO`."""
    total = ops.logsumexp(log_probability, axis=-1, keepdims=True)
    return ops.where(is_possible(log_probability), log_probability - total, LOG_ZERO)
