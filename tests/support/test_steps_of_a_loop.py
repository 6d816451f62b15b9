"""What a step of a loop in training may be: graph and eager steps agree, or an error says what is asked of it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vattn.support.loop import scan
from keras_vattn.support.products import product

BATCH, STEPS, WIDTH, UNITS = 3, 4, 5, 6
GENERATOR = np.random.default_rng(0)
INPUTS = GENERATOR.normal(size=(BATCH, STEPS, WIDTH)).astype("float32")
KERNEL = (0.4 * GENERATOR.normal(size=(WIDTH + UNITS, UNITS))).astype("float32")


def compared(function, *arguments):
    """Assert that a function of arguments and `training` gives in a graph what it gives eagerly."""
    expected = tf.nest.flatten(function(*arguments))
    found = tf.nest.flatten(tf.function(function, autograph=False)(*arguments))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


SMALL = tf.constant(np.tile(INPUTS, (1, 1, 2))[..., :UNITS])
START = tf.ones((BATCH, UNITS))


def test_a_step_with_a_gradient_of_its_own():
    """It goes down an energy that a product is part of."""

    def gradient(kernel):
        def step(x, hidden):
            with tf.GradientTape() as inner:
                inner.watch(hidden)
                energy = tf.reduce_sum(tf.tanh(product(hidden, kernel)) ** 2)
            hidden = hidden + x - 0.3 * inner.gradient(energy, hidden)
            return hidden, hidden

        with tf.GradientTape() as tape:
            tape.watch(kernel)
            loss = tf.reduce_sum(scan(step, START, SMALL, STEPS, training=True)[0] ** 2)
        return tape.gradient(loss, kernel)

    compared(gradient, tf.constant(KERNEL[:UNITS]))


@pytest.mark.parametrize("around", ["cond", "while"])
def test_a_loop_in_a_branch_or_another_loop(around):
    scale = keras.Variable(np.full(UNITS, 0.7, "float32"))

    def gradient(kernel):
        def loss():
            step = lambda x, h: (tf.tanh(scale * product(x + h, kernel)),) * 2  # noqa: E731
            return tf.reduce_sum(scan(step, START, SMALL, STEPS, training=True)[0] ** 2)

        with tf.GradientTape() as tape:
            tape.watch(kernel)
            if tf.executing_eagerly():
                value = loss()
            elif around == "cond":
                value = tf.cond(tf.reduce_sum(kernel) > -1e9, loss, lambda: 0.0)
            else:
                value = tf.while_loop(lambda i, _: i < 1, lambda i, _: (i + 1, loss()), (0, 0.0), maximum_iterations=1)[
                    1
                ]
        return tape.gradient(value, [kernel, scale.value])

    compared(gradient, tf.constant(KERNEL[:UNITS]))


@pytest.mark.parametrize("reads", ["branch", "assign"])
def test_a_step_that_uses_a_variable_in_another_way(reads):
    """A read in a branch and an assignment have TensorFlow's gradient."""
    table = tf.Variable(KERNEL[:UNITS, 0])

    def gradient(kernel):
        def step(x, hidden):
            if reads == "assign":
                table.assign(table * 1.0)
            rows = {
                "branch": lambda: tf.cond(tf.reduce_sum(x) > 0, lambda: table * 2.0, lambda: table * 3.0),
                "assign": lambda: table * 1.0,
            }[reads]()
            return (tf.tanh(product(x + hidden, kernel) + rows),) * 2

        with tf.GradientTape() as tape:
            tape.watch(kernel)
            loss = tf.reduce_sum(scan(step, START, SMALL, STEPS, training=True)[0] ** 2)
        return [tf.convert_to_tensor(x) for x in tape.gradient(loss, [kernel, table])]

    compared(gradient, tf.constant(KERNEL[:UNITS]))


def test_outputs_and_states_of_all_kinds():
    """Integers, an array, a gradient from outside of the function, and one of some rows of the last state."""
    kernel = tf.constant(KERNEL[:UNITS])

    @tf.function(autograph=False)
    def outputs(kernel):
        def step(x, hidden):
            hidden = tf.tanh(product(x + hidden, kernel))
            return {"h": hidden, "best": tf.argmax(hidden, axis=-1), "same": np.ones((BATCH, 2), "float32")}, hidden

        given, last = scan(step, START, SMALL, STEPS, training=True)
        return given, tf.gather(last, [0, 0, 2])

    def gradient(function):
        with tf.GradientTape() as tape:
            tape.watch(kernel)
            given, rows = function(kernel)
            loss = tf.reduce_sum(given["h"] ** 2) + tf.reduce_sum(rows) + tf.reduce_sum(given["same"])
        return tape.gradient(loss, kernel)

    np.testing.assert_allclose(gradient(outputs), gradient(outputs.python_function), rtol=1e-4, atol=1e-5)


def test_products_of_any_rank_outside_of_a_loop():
    assert product(tf.ones((2, 3, 4, 5)), tf.ones((2, 3, 5, 6))).shape == (2, 3, 4, 6)
    assert product(tf.ones((2, 3, 5), tf.float16), tf.ones((2, 5, 6))).dtype == tf.float32
