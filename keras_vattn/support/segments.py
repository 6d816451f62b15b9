"""Compute segment sums and gathers with gradients that need little memory.

The ids must not be negative. To search for negative ids, TensorFlow's gradient would create large temporary arrays.
"""

import tensorflow as tf
from keras import ops

from keras_vattn.support.gradients import custom_gradient


def segment_sum(x, ids, count):
    """Return a tensor (count, ...). Its row i is the sum of the rows of x with the id i.

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
    """Return float32 (count, H, F). Row t is the sum of weights[e] x[sources[e]] over all e with targets[e] = t.

    No array (E, H, F) is stored for the gradient.

    Args:
        x: (N, H, F).
        weights: float32 (E, H).
        sources: Integers (E,) in [0, N).
        targets: Integers (E,) in [0, count).
        count: Number of targets, an integer or scalar tensor.
    """

    @custom_gradient
    def total(x, weights):
        # In half precision, small weights would underflow.
        rows = ops.cast(gather(x, sources), "float32")
        value = segment_sum(rows * weights[..., None], targets, count)

        def gradient(upstream):
            upstream = gather(upstream, targets)
            by_x = segment_sum(upstream * weights[..., None], sources, ops.shape(x)[0])
            by_weights = ops.sum(upstream * ops.cast(gather(x, sources), "float32"), axis=-1)
            return ops.cast(by_x, x.dtype), by_weights

        return value, gradient

    return total(x, weights)
