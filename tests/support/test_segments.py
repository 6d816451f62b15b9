"""Tests that segment sums and gathers have the values, gradients and second gradients of TensorFlow's operations."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vattn.support import segments

GENERATOR = np.random.default_rng(0)
IDS = tf.constant([2, 0, 2, 3, 3, 2])  # segment 1 is empty
SOURCES = tf.constant([1, 1, 0, 4, 2, 4])
ENTRIES = tf.constant(GENERATOR.normal(size=(6, 2, 3)), tf.float32)
ROWS = tf.constant(GENERATOR.normal(size=(5, 2, 3)), tf.float32)
WEIGHTS = tf.constant(GENERATOR.normal(size=(6, 2)), tf.float32)


def plain(x, weights):
    return tf.math.unsorted_segment_sum(tf.gather(x, SOURCES) * weights[..., None], IDS, 4)


CASES = [
    (lambda x: segments.segment_sum(x, IDS, 4), lambda x: tf.math.unsorted_segment_sum(x, IDS, 4), [ENTRIES]),
    (lambda x: segments.gather(x, SOURCES), lambda x: tf.gather(x, SOURCES), [ROWS]),
    (lambda x, w: segments.weighted_segment_sum(x, w, SOURCES, IDS, 4), plain, [ROWS, WEIGHTS]),
]


def derivatives(function, inputs):
    """Return the value, the gradient of a function of the value, and the gradient of a function of this gradient."""
    with tf.GradientTape() as outer:
        outer.watch(inputs)
        with tf.GradientTape() as inner:
            inner.watch(inputs)
            value = function(*inputs)
            total = tf.reduce_sum(tf.sin(value))
        first = [tf.convert_to_tensor(x) for x in inner.gradient(total, inputs)]
        squares = sum(tf.reduce_sum(x**2) for x in first)
    return [value, *first, *(tf.convert_to_tensor(x) for x in outer.gradient(squares, inputs))]


@pytest.mark.parametrize("case", CASES, ids=["segment_sum", "gather", "weighted_segment_sum"])
@pytest.mark.parametrize("compiled", [False, True])
def test_derivatives(case, compiled):
    ours, reference, inputs = case
    run = tf.function(lambda: derivatives(ours, inputs), jit_compile=True) if compiled else None
    results = run() if compiled else derivatives(ours, inputs)
    for one, two in zip(results, derivatives(reference, inputs), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)
