"""Categorical alignments in log space, float32: probabilities, KL and draws, shared by the layers of the latent
alignment."""

import tensorflow as tf
from keras import ops

from keras_vattn import random

# In place of log 0: its exp is exactly 0, its product with 0 is 0, and a difference of two of them is 0, not NaN.
LOG_ZERO = -1e30


def log_probabilities(logits, keys):
    """Return log softmax over the valid keys of each row, float32 (B, T, S), `LOG_ZERO` at the others.

    Args:
        logits: (B, T, S).
        keys: A `keras_vattn.DenseKeys`.
    """
    # A logit of -inf means what a mask does.
    return keys.where_valid(ops.maximum(keys.log_softmax(logits), LOG_ZERO), LOG_ZERO)


def is_possible(log_probability):
    """Return whether a log probability belongs to a key that is not masked, boolean of the shape of the argument."""
    return log_probability > 0.5 * LOG_ZERO


def without_empty_rows(log_weights):
    """Return log weights (B, T, K) with equal ones in the rows where no key is valid, whose candidates are all zero."""
    possible = ops.any(is_possible(log_weights), axis=-1, keepdims=True)
    return ops.where(possible, log_weights, -ops.log(ops.cast(ops.shape(log_weights)[-1], log_weights.dtype)))


def draw(log_probability, num_samples, seed):
    """Return independent draws, int64 (B, T, num_samples), of the categorical distributions (B, T, S) (Gumbel-max)."""
    batch_size, num_queries, num_keys = ops.shape(log_probability)
    noise = random.gumbel((batch_size, num_queries, num_samples, num_keys), seed)
    # Keras's argmax first looks at the sign of every entry, which a GPU does in host memory.
    return tf.argmax(log_probability[:, :, None] + noise, axis=-1)


def gather_entries(x, index):
    """Return the entries (B, T, K) of x (B, T, S) at int64 indices (B, T, K)."""
    return tf.gather(x, index, batch_dims=2)


def most_probable(log_probability, top_k):
    """Return the indices, int64 (B, T, K), of the `top_k` largest entries of (B, T, S), of all where S is smaller."""
    num_keys = ops.shape(log_probability)[-1]
    count = min(top_k, num_keys) if isinstance(num_keys, int) else tf.minimum(top_k, num_keys)
    return tf.cast(tf.math.top_k(log_probability, count).indices, tf.int64)


def renormalised(log_probability):
    """Return log probabilities (B, T, K) whose exp sums to 1, `LOG_ZERO` still at masked keys."""
    total = ops.logsumexp(log_probability, axis=-1, keepdims=True)
    return ops.where(is_possible(log_probability), log_probability - total, LOG_ZERO)
