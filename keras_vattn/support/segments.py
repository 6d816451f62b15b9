"""Compute segment sums and gathers. Each of the two operations is the gradient of the other.

TensorFlow's gradient of a segment sum first searches for negative ids, with temporary arrays as large as the gathered
rows. The ids in this module are never negative, so the gradients here skip the search.
"""

import tensorflow as tf
from keras import ops

from keras_vattn.support.gradients import custom_gradient


def segment_sum(x, ids, count):
    """For each id, sum the rows of x that have this id. Return a tensor (count, ...).

    Args:
        x: (E, ...).
        ids: Integers (E,) in [0, count).
        count: Number of segments, an integer or scalar tensor.
    """

    @custom_gradient
    def total(x):
        return tf.math.unsorted_segment_sum(x, ids, count), lambda upstream: gather(upstream, ids)

    return total(x)


def gather(x, ids):
    """Return x[ids], (E, ...), for x (count, ...) and ids (E,)."""

    @custom_gradient
    def rows(x):
        return tf.gather(x, ids), lambda upstream: segment_sum(upstream, ids, ops.shape(x)[0])

    return rows(x)


def weighted_segment_sum(x, weights, sources, targets, count):
    """For each t, sum weights[e] x[sources[e]] over all e with targets[e] = t. Return a float32 tensor (count, H, F).

    The function stores no array (E, H, F) for the gradient.

    Args:
        x: (N, H, F).
        weights: float32 (E, H).
        sources: Integers (E,) in [0, N).
        targets: Integers (E,) in [0, count).
        count: Number of targets, an integer or scalar tensor.
    """

    @custom_gradient
    def total(x, weights):
        # Always use float32, because the weights of a target with very many edges underflow in half precision.
        rows = ops.cast(gather(x, sources), "float32")
        value = segment_sum(rows * weights[..., None], targets, count)

        def gradient(upstream):
            upstream = gather(upstream, targets)
            by_x = segment_sum(upstream * weights[..., None], sources, ops.shape(x)[0])
            by_weights = ops.sum(upstream * ops.cast(gather(x, sources), "float32"), axis=-1)
            return ops.cast(by_x, x.dtype), by_weights

        return value, gradient

    return total(x, weights)
