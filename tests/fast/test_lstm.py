"""Tests that `keras_vattn.fast.LSTM` gives the results of `keras.layers.LSTM`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vattn

BATCH, STEPS, WIDTH, UNITS = 3, 5, 4, 6
INPUTS = np.random.default_rng(0).normal(size=(BATCH, STEPS, WIDTH)).astype("float32")
# One row is padded on the right, one has gaps, and one is only padding.
MASK = np.array([[1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [0, 0, 0, 0, 0]], bool)
OPTIONS = {
    "last": {},
    "sequences": {"return_sequences": True},
    "state": {"return_sequences": True, "return_state": True},
    "backwards": {"return_sequences": True, "return_state": True, "go_backwards": True},
    "no-bias": {"use_bias": False},
    "zeros": {"return_sequences": True, "zero_output_for_mask": True},
}


def pair(**options):
    """Return Keras's layer and the layer of this library with the same weights."""
    layers = [make(UNITS, **options) for make in (keras.layers.LSTM, keras_vattn.fast.LSTM)]
    for layer in layers:
        layer.build((None, None, WIDTH))
    values = [np.random.default_rng(1).normal(size=weight.shape) for weight in layers[0].weights]
    for layer in layers:
        layer.set_weights(values)
    return layers


def outcome(layer, mask, initial_state, training=False):
    """Return the results, and their gradients by inputs, states and weights."""
    inputs = tf.constant(INPUTS)
    watched = [inputs, *(initial_state or [])]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        results = tf.nest.flatten(layer(inputs, initial_state=initial_state, mask=mask, training=training))
        loss = tf.add_n([tf.reduce_sum(tf.sin(3.0 * x)) for x in results])
    return results, tape.gradient(loss, [*watched, *(weight.value for weight in layer.trainable_weights)])


# Each option is tested twice. All pairs of values of mask, initial state and graph mode occur.
CALLS = [(bool(n & 1), bool(n & 2), bool(n & 4)) for n in (0, 7, 1, 6, 2, 5, 3, 4, 0, 7, 1, 6)]


@pytest.mark.parametrize(
    ("name", "masked", "has_state", "graph"), [(list(OPTIONS)[i // 2], *c) for i, c in enumerate(CALLS)]
)
def test_the_results_equal_keras(name, masked, has_state, graph):
    options = {key: value for key, value in OPTIONS[name].items() if masked or key != "zero_output_for_mask"}
    state = [tf.constant(np.random.default_rng(i).normal(size=(BATCH, UNITS)), tf.float32) for i in (2, 3)]
    arguments = (tf.constant(MASK) if masked else None, state if has_state else None, True)
    results = []
    for layer in pair(**options):
        run = lambda layer=layer: outcome(layer, *arguments)  # noqa: E731
        results.append(tf.function(run, autograph=False)() if graph else run())
    for one, other in zip(tf.nest.flatten(results[1]), tf.nest.flatten(results[0]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_dropout_equals_keras():
    results = [layer(INPUTS, training=True).numpy() for layer in pair(dropout=0.5, seed=3)]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-6)


def test_weights_of_keras_load(tmp_path):
    reference, ours = (
        keras.Sequential([keras.Input((None, WIDTH)), make(UNITS)])
        for make in (keras.layers.LSTM, keras_vattn.fast.LSTM)
    )
    reference.save_weights(tmp_path / "keras.weights.h5")
    ours.load_weights(tmp_path / "keras.weights.h5")
    np.testing.assert_allclose(ours(INPUTS), reference(INPUTS), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"unroll": True},
        {"recurrent_dropout": 0.5},
        {"activation": "relu"},
        {"implementation": 1, "dropout": 0.5, "use_cudnn": False},
    ],
)
def test_unsupported_options_use_the_loop_of_keras(options):
    layers = pair(return_sequences=True, seed=1, **options)
    results = [layer(INPUTS, training=True).numpy() for layer in layers]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-6)


def test_stateful():
    layers = [make(UNITS, stateful=True) for make in (keras.layers.LSTM, keras_vattn.fast.LSTM)]
    for layer in layers:
        layer(INPUTS)
    layers[1].set_weights(layers[0].get_weights())
    for layer in layers:
        layer.reset_state()
    for _ in range(2):
        results = [layer(INPUTS).numpy() for layer in layers]
        np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["last", "state", "backwards"])
def test_cudnn_gets_no_empty_row(name, cudnn_masks):
    """cuDNN rejects rows without a valid step. The results equal those of Keras's loop, which accepts such rows."""
    mask = tf.constant(np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], bool))
    state = [tf.constant(np.random.default_rng(i).normal(size=(BATCH, UNITS)), tf.float32) for i in (2, 3)]
    keras_layer, layer = pair(**OPTIONS[name])
    keras_layer.use_cudnn = False
    results, expected = (outcome(each, mask, state, True) for each in (layer, keras_layer))
    for one, other in zip(tf.nest.flatten(results), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert len(cudnn_masks) == 1 and np.all(np.any(cudnn_masks[0], axis=1))
