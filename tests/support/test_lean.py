"""Operations of a step: values and gradients of those that say themselves what their gradient is."""

import numpy as np
import tensorflow as tf

from keras_vattn.support import lean
from keras_vattn.support.loop import scan

GENERATOR = np.random.default_rng(0)
BATCH, STEPS, UNITS = 3, 4, 5
INPUTS = tf.constant(GENERATOR.normal(size=(BATCH, STEPS, 4 * UNITS)), tf.float32)
MASK = tf.constant([[True, True, False, True], [False, True, True, False], [True] * 4])


def usual(x, state, mask):
    into, forget, candidate, out = tf.split(x, 4, axis=-1)
    cell = tf.sigmoid(forget) * state["c"] + tf.sigmoid(into) * tf.tanh(candidate)
    new = {"h": tf.sigmoid(out) * tf.tanh(cell), "c": cell}
    return {name: tf.where(mask[:, None], new[name], state[name]) for name in new}


def lean_one(x, state, mask):
    hidden, cell = lean.lstm(tf.split(x, 4, axis=-1), state["c"])
    new = {"h": hidden, "c": cell}
    return {name: lean.where(mask, new[name], state[name]) for name in new}


def outcome(step, training):
    start = {"h": tf.fill((BATCH, UNITS), 0.3), "c": tf.fill((BATCH, UNITS), -0.7)}

    def twice(inputs, state):
        x = lean.add(inputs["x"], tf.tile(state["h"], (1, 4)))
        return (step(x, state, inputs["mask"]),) * 2

    with tf.GradientTape() as tape:
        tape.watch((INPUTS, start))
        outputs, last = scan(twice, start, {"x": INPUTS, "mask": MASK}, STEPS, training)
        loss = tf.reduce_sum(tf.sin(3.0 * outputs["h"])) + tf.reduce_sum(last["c"] ** 2)
    return outputs, tape.gradient(loss, (INPUTS, start))


def test_an_lstm_under_a_mask():
    expected = outcome(usual, False)
    for jit_compile in (False, True):
        found = tf.function(lambda: outcome(lean_one, True), autograph=False, jit_compile=jit_compile)()
        for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
