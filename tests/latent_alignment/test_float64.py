"""`keras.config.set_floatx("float64")`: the layers of a latent alignment, losses and metrics train."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from latent_cases import OBJECTIVES, VOCABULARY, arrays, model

import keras_vattn


@pytest.fixture(autouse=True)
def double_precision():
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(policy)


@pytest.mark.parametrize("name", ["elbo-moving-average", "top_k"])
def test_objectives_in_fit(name):
    network = model(OBJECTIVES[name])
    network.compile("sgd", keras_vattn.NegativeBound(ignore_class=0), run_eagerly=True)
    inputs = arrays()
    history = network.fit(inputs, inputs["targets"], verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert np.isfinite(network.evaluate(inputs, inputs["targets"], verbose=0)).all()


def test_losses_and_metrics_in_fit():
    words = keras.Input((None,), dtype="int32")
    logits = keras.layers.Dense(VOCABULARY)(keras.layers.Embedding(VOCABULARY, 4, mask_zero=True)(words))
    network = keras.Model(words, logits)
    network.compile(
        "sgd",
        keras_vattn.SequenceCrossentropy(ignore_class=0, label_smoothing=0.1),
        metrics=[keras_vattn.Perplexity(ignore_class=0)],
    )
    ids = arrays()["targets"]
    assert np.isfinite(list(network.fit(ids, ids, verbose=0).history.values())).all()
    votes = np.eye(VOCABULARY)[ids]
    np.testing.assert_allclose(
        keras_vattn.SequenceCrossentropy()(votes, network(ids)),
        keras_vattn.SequenceCrossentropy()(ids, network(ids)),
        rtol=1e-6,
    )


def test_gradients_are_those_of_float64():
    """The value is float32, and the gradient of a weight has the dtype of the weight."""
    layer = keras_vattn.TokenLogLikelihood(5, chunk_size=4)
    inputs = tf.constant(np.random.default_rng(0).normal(size=(2, 3, 2, 4)))
    votes = np.random.default_rng(1).multinomial(10, np.ones(5) / 5, size=(2, 3))
    layer.build(inputs.shape)
    kernel = layer.kernel.value
    with tf.GradientTape() as tape:
        value = layer(inputs, votes)
    with tf.GradientTape() as dense:
        expected = tf.einsum("btkv,btv->btk", tf.nn.log_softmax(inputs @ kernel), tf.constant(votes, tf.float64))
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    gradient = tape.gradient(value, kernel)
    assert gradient.dtype == tf.float64
    np.testing.assert_allclose(gradient, dense.gradient(expected, kernel), rtol=1e-4, atol=1e-5)
