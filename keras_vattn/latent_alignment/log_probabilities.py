"""Probabilities and draws of categorical alignments in log space, float32."""

import tensorflow as tf
from keras import ops

from keras_vattn import random

# Replaces log 0: its exp is 0, its product with 0 is 0, and the difference of two such entries is 0 instead of NaN.
LOG_ZERO = -1e30


def log_probabilities(logits, keys):
    """Return the log softmax over the valid keys of each row, float32 (B, T, S), and `LOG_ZERO` at masked keys.

    Args:
        logits: (B, T, S).
        keys: A `keras_vattn.DenseKeys`.
    """
    # A logit of -inf acts as a mask.
    return keys.where_valid(ops.maximum(keys.log_softmax(logits), LOG_ZERO), LOG_ZERO)


def is_possible(log_probability):
    """Return a boolean array, `True` where a log probability belongs to an unmasked key."""
    return log_probability > 0.5 * LOG_ZERO


def without_empty_rows(log_weights):
    """Return log weights (B, T, K) that are uniform in rows without a valid key, whose candidates are all zero."""
    possible = ops.any(is_possible(log_weights), axis=-1, keepdims=True)
    return ops.where(possible, log_weights, -ops.log(ops.cast(ops.shape(log_weights)[-1], log_weights.dtype)))


def draw(log_probability, num_samples, seed):
    """Return independent Gumbel-max draws, int64 (B, T, num_samples), from categorical distributions (B, T, S)."""
    batch_size, num_queries, num_keys = ops.shape(log_probability)
    noise = random.gumbel((batch_size, num_queries, num_samples, num_keys), seed)
    # The argmax of Keras first checks the sign of every entry, which runs in host memory on a GPU.
    return tf.argmax(log_probability[:, :, None] + noise, axis=-1)


def gather_entries(x, index):
    """Return the entries (B, T, K) of x (B, T, S) at int64 indices (B, T, K)."""
    return tf.gather(x, index, batch_dims=2)


def most_probable(log_probability, top_k):
    """Return the indices, int64 (B, T, K), of the `top_k` largest entries of (B, T, S), or of all if S is smaller."""
    num_keys = ops.shape(log_probability)[-1]
    count = min(top_k, num_keys) if isinstance(num_keys, int) else tf.minimum(top_k, num_keys)
    return tf.cast(tf.math.top_k(log_probability, count).indices, tf.int64)


def renormalised(log_probability):
    """Return log probabilities (B, T, K), renormalised so that their exp sums to 1. Masked keys stay `LOG_ZERO`."""
    total = ops.logsumexp(log_probability, axis=-1, keepdims=True)
    return ops.where(is_possible(log_probability), log_probability - total, LOG_ZERO)
