"""Tests that graph and eager loops give equal gradients of the kernels and tensors that all steps share."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiers import jit_compile

from keras_vattn.support.loop import scan
from keras_vattn.support.products import product

BATCH, STEPS, WIDTH, UNITS, KEYS = 3, 4, 5, 6, 7
GENERATOR = np.random.default_rng(0)
INPUTS = GENERATOR.normal(size=(BATCH, STEPS, WIDTH)).astype("float32")
KERNEL = (0.4 * GENERATOR.normal(size=(WIDTH + UNITS, UNITS))).astype("float32")
QUERY_KERNEL = (0.4 * GENERATOR.normal(size=(UNITS, WIDTH))).astype("float32")
MEMORY = GENERATOR.normal(size=(BATCH, KEYS, WIDTH)).astype("float32")


def run(inputs, kernel, query_kernel, memory, training):
    """Run a recurrence. Its steps compute products with two kernels, for (B, D) and (B, 1, D), and with the memory."""

    keys = tf.transpose(memory, (0, 2, 1))

    def step(x, hidden):
        query = product(hidden[:, None], query_kernel)  # (B, 1, WIDTH)
        weights = tf.nn.softmax(product(query, keys))
        attended = product(weights, memory)[:, 0]
        hidden = tf.tanh(product(tf.concat([x + attended, hidden], axis=-1), kernel))
        return {"hidden": hidden, "weights": weights[:, 0]}, hidden

    shape = tf.shape(inputs)
    outputs, _ = scan(step, tf.zeros((shape[0], UNITS), inputs.dtype), inputs, shape[1], training)
    return outputs


def loss_of(*arguments, training=True):
    outputs = run(*arguments, training)
    scale = tf.cast(tf.range(1, UNITS + 1), outputs["hidden"].dtype)
    return tf.reduce_sum(outputs["hidden"] ** 2 * scale) + tf.reduce_sum(tf.sin(5.0 * outputs["weights"]))


def gradients(*arguments, training=True):
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        loss = loss_of(*arguments, training=training)
    return tape.gradient(loss, arguments)


SMALL = tf.constant(np.tile(INPUTS, (1, 1, 2))[..., :UNITS])
START = tf.ones((BATCH, UNITS))
ARGUMENTS = [tf.constant(x) for x in (INPUTS, KERNEL, QUERY_KERNEL, MEMORY)]


@jit_compile
@pytest.mark.parametrize("has_static_shape", [True, False])
def test_gradients_equal_eager_steps(has_static_shape, jit_compile):
    expected = gradients(*ARGUMENTS)
    signature = [tf.TensorSpec(x.shape if has_static_shape else (None, None, *x.shape[2:]), x.dtype) for x in ARGUMENTS]
    signature[1:3] = [tf.TensorSpec(x.shape) for x in ARGUMENTS[1:3]]
    function = tf.function(gradients, signature, autograph=False, jit_compile=jit_compile)
    for _ in range(2):
        for gradient, value in zip(function(*ARGUMENTS), expected, strict=True):
            np.testing.assert_allclose(gradient, value, rtol=1e-5, atol=1e-5)
    # Also test fewer examples and steps if their numbers are not static.
    if not has_static_shape:
        fewer = [INPUTS[:2, :3], KERNEL, QUERY_KERNEL, MEMORY[:2, :5]]
        for gradient, value in zip(function(*fewer), gradients(*map(tf.constant, fewer)), strict=True):
            np.testing.assert_allclose(gradient, value, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_gradients_of_gradients():
    """A gradient of a gradient raises an error in a training loop. With `training=False` it is correct."""

    def penalty(*arguments, training):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            value = tf.add_n([tf.reduce_sum(x**2) for x in gradients(*arguments, training=training)])
        return tape.gradient(value, arguments)

    expected = penalty(*ARGUMENTS, training=True)
    function = tf.function(penalty, autograph=False)
    for gradient, value in zip(function(*ARGUMENTS, training=False), expected, strict=True):
        np.testing.assert_allclose(gradient, value, rtol=1e-3, atol=1e-3)
    with pytest.raises(LookupError, match="Run its steps eagerly"):
        function(*ARGUMENTS, training=True)


def assert_graph_equals_eager(function, *arguments):
    """Assert that a function returns the same results in a graph as eagerly."""
    results = (tf.nest.flatten(f(*arguments)) for f in (tf.function(function, autograph=False), function))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_products_outside_the_step_graph():
    """Covers products in a branch, in a loop inside the step, with a kernel that the step computes, and with more rows
    than examples."""
    kernel = tf.constant(KERNEL[:UNITS])

    def value(kernel, training):
        def step(x, hidden):
            branch = tf.cond(tf.reduce_sum(x) > 0, lambda: product(hidden, kernel), lambda: product(-hidden, kernel))
            inner, _ = scan(lambda y, z: (product(z, kernel) + y,) * 2, hidden, branch[:, None] * tf.ones((1, 2, 1)), 2)
            scaled_product = product(hidden, kernel * tf.reduce_mean(x))
            rows = product(tf.stack([hidden, x], axis=1), kernel)  # (B, 2, UNITS)
            hidden = tf.tanh(inner[:, 1] + scaled_product + rows[:, 0] + rows[:, 1])
            return hidden, hidden

        return tf.reduce_sum(scan(step, START, SMALL, STEPS, training)[0] ** 2)

    def gradient(kernel, training):
        with tf.GradientTape() as tape:
            tape.watch(kernel)
            loss = value(kernel, training)
        return tape.gradient(loss, kernel)

    for training in (True, False):
        assert_graph_equals_eager(gradient, kernel, training)


@pytest.mark.parametrize("make", [tf.Variable, keras.Variable])
def test_other_tensors_that_steps_share(make):
    """Covers shared tensors and variables that are no kernels, a kernel with another use, rows of a table, and an
    integer state."""
    scale, kernel, table = tf.constant(KERNEL[0]), make(KERNEL[:UNITS]), make(KERNEL[:STEPS])
    unused = make(1.0)

    def gradient(scale, training):
        def step(x, state):
            hidden, count = state
            shared = tf.reduce_sum(kernel) + tf.gather(tf.convert_to_tensor(table), count)
            hidden = tf.tanh(scale * product(hidden, kernel) + x + shared)
            return {"hidden": hidden, "count": count + tf.zeros((BATCH,), tf.int32)}, (hidden, count + 1)

        with tf.GradientTape() as tape:
            tape.watch(scale)
            outputs, (last, _) = scan(step, (START, tf.constant(0)), SMALL, STEPS, training)
            loss = tf.reduce_sum(outputs["hidden"] ** 2) + tf.reduce_sum(tf.sin(last))
        weights = (x.value if make is keras.Variable else x for x in (kernel, table, unused))
        *gradients, nothing = tape.gradient(loss, [scale, *weights])
        assert nothing is None
        return [tf.convert_to_tensor(x) for x in gradients]

    for training in (True, False):
        assert_graph_equals_eager(gradient, scale, training)


def test_a_step_that_draws_runs_once():
    """The gradient uses the noise of the forward pass in order: y = s d_1 + s d_1 d_2 + ..., so dy/ds = y / s."""

    @tf.function(autograph=False)
    def outcome(start):
        def step(x, state):
            state = state * tf.random.uniform(tf.shape(state), 0.5, 1.5)
            return state, state

        with tf.GradientTape() as tape:
            tape.watch(start)
            total = tf.reduce_sum(scan(step, start, {}, STEPS, training=True)[0], axis=1)
        return total, tape.gradient(total, start)

    start = tf.fill((BATCH, UNITS), 2.0)
    total, gradient = outcome(start)
    np.testing.assert_allclose(gradient, total / 2.0, rtol=1e-5)


def test_a_loop_in_a_loop():
    """Each loop computes the gradients of its own products after its own backward loop."""

    def gradient(kernel):
        def inner(y, z):
            z = tf.tanh(product(z, kernel) + y)
            return z, z

        def step(x, hidden):
            _, hidden = scan(inner, product(hidden, kernel), tf.stack([x, -x], axis=1), 2, training=True)
            return hidden, hidden

        with tf.GradientTape() as tape:
            tape.watch(kernel)
            loss = tf.reduce_sum(scan(step, START, SMALL, STEPS, training=True)[0] ** 2)
        return tape.gradient(loss, kernel)

    assert_graph_equals_eager(gradient, tf.constant(KERNEL[:UNITS]))


@pytest.mark.slow
def test_a_saved_function_that_trains(tmp_path):
    """A SavedModel contains a loop with a gradient and a loop without a gradient."""

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.kernels = [tf.Variable(x) for x in (KERNEL, QUERY_KERNEL)]

        @tf.function(input_signature=[tf.TensorSpec((None, None, WIDTH)), tf.TensorSpec((None, None, WIDTH))])
        def outputs(self, inputs, memory):
            return {name: run(inputs, *self.kernels, memory, name == "training") for name in ("training", "inference")}

    module = Module()
    tf.saved_model.save(module, tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    for one, other in zip(
        tf.nest.flatten(loaded.outputs(INPUTS, MEMORY)), tf.nest.flatten(module.outputs(INPUTS, MEMORY)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_a_step_that_computes_a_gradient():
    """The step descends the gradient of an energy that contains a product."""

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

    assert_graph_equals_eager(gradient, tf.constant(KERNEL[:UNITS]))


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

    assert_graph_equals_eager(gradient, tf.constant(KERNEL[:UNITS]))


@pytest.mark.parametrize("reads", ["branch", "assign"])
def test_a_step_that_reads_in_a_branch_or_assigns_a_variable(reads):
    """If a step reads a variable in a branch, or assigns it, the loop has TensorFlow's gradient, not its own."""
    table = tf.Variable(KERNEL[:UNITS, 0])

    def gradient(kernel):
        def step(x, hidden):
            if reads == "assign":
                table.assign(table * 1.0)
                rows = table * 1.0
            else:
                rows = tf.cond(tf.reduce_sum(x) > 0, lambda: table * 2.0, lambda: table * 3.0)
            return (tf.tanh(product(x + hidden, kernel) + rows),) * 2

        with tf.GradientTape() as tape:
            tape.watch(kernel)
            loss = tf.reduce_sum(scan(step, START, SMALL, STEPS, training=True)[0] ** 2)
        return [tf.convert_to_tensor(x) for x in tape.gradient(loss, [kernel, table])]

    assert_graph_equals_eager(gradient, tf.constant(KERNEL[:UNITS]))


def test_outputs_and_states_of_all_kinds():
    """Covers integers, a NumPy array, a gradient outside the function, and a sparse gradient of the last state."""
    kernel = tf.constant(KERNEL[:UNITS])

    @tf.function(autograph=False)
    def outputs(kernel):
        def step(x, hidden):
            hidden = tf.tanh(product(x + hidden, kernel))
            return {"h": hidden, "best": tf.argmax(hidden, axis=-1), "same": np.ones((BATCH, 2), "float32")}, hidden

        step_outputs, last = scan(step, START, SMALL, STEPS, training=True)
        return step_outputs, tf.gather(last, [0, 0, 2])

    def gradient(function):
        with tf.GradientTape() as tape:
            tape.watch(kernel)
            step_outputs, rows = function(kernel)
            loss = tf.reduce_sum(step_outputs["h"] ** 2) + tf.reduce_sum(rows) + tf.reduce_sum(step_outputs["same"])
        return tape.gradient(loss, kernel)

    np.testing.assert_allclose(gradient(outputs), gradient(outputs.python_function), rtol=1e-4, atol=1e-5)


def test_products_of_any_rank_outside_of_a_loop():
    assert product(tf.ones((2, 3, 4, 5)), tf.ones((2, 3, 5, 6))).shape == (2, 3, 4, 6)
    assert product(tf.ones((2, 3, 5), tf.float16), tf.ones((2, 5, 6))).dtype == tf.float32
