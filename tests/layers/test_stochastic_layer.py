"""What stochastic layers share, where no layer of the battery shows it."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vattn

X = np.random.default_rng(0).normal(size=(4, 3, 5)).astype("float32")


def value_and_gradients(scope, graph, make):
    with scope():
        layer = make()
        layer.build(*[X.shape] * (1 if isinstance(layer, keras_vattn.GaussianLatent) else 2))
    for weight in layer.weights:
        weight.assign(0.1 * np.random.default_rng(1).normal(size=weight.shape))

    def run():
        with tf.GradientTape() as tape, scope():
            output = layer(*[X] * (1 if isinstance(layer, keras_vattn.GaussianLatent) else 2), training=True)
            loss = tf.reduce_sum(tf.square(output)) + sum(layer.losses)
        return loss, tape.gradient(loss, [weight.value for weight in layer.trainable_weights])

    return (tf.function(run, autograph=False) if graph else run)()


def latent():
    return keras_vattn.GaussianLatent(2, seed=1)


def attention():
    return keras_vattn.BayesianAttention(score="bilinear", seed=1)


def heads():
    return keras_vattn.MultiHeadAttention(2, 3, alignment="weibull", prior="contextual", seed=1)


# Keras cannot rematerialize the Dense layers of its own heads in a graph.
@pytest.mark.parametrize(
    ("make", "graph"), [(latent, False), (latent, True), (attention, False), (attention, True), (heads, False)]
)
def test_rematerialization_changes_no_draw_and_no_gradient(make, graph):
    """A call that is computed again would draw other noise, and the gradient of its KL would be lost."""
    plain = value_and_gradients(contextlib.nullcontext, graph, make)
    again = value_and_gradients(lambda: keras.RematScope(mode="full"), graph, make)
    np.testing.assert_allclose(again[0], plain[0], rtol=1e-5)
    for one, two in zip(again[1], plain[1], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


def test_what_is_deterministic_is_rematerialized():
    with keras.RematScope(mode="full"):
        plain, drawn = (keras_vattn.MultiHeadAttention(2, 3, alignment=name) for name in ("softmax", "weibull"))
    assert plain.rematerialized_call(plain.call) != plain.call
    assert drawn.rematerialized_call(drawn.call) == drawn.call


def test_weights_of_the_keras_layer_are_taken_as_they_are():
    ours = keras_vattn.MultiHeadAttention(2, 3, alignment="weibull")
    of_keras = keras.layers.MultiHeadAttention(2, 3)
    for layer in (ours, of_keras):
        layer.build(X.shape, X.shape)
    ours.set_weights(of_keras.get_weights())
    np.testing.assert_allclose(ours(X, X), of_keras(X, X), atol=1e-6)
    of_keras.set_weights(ours.get_weights())


@pytest.mark.parametrize("prior", ["fixed", "contextual"])
@pytest.mark.parametrize("alignment", ["weibull", "lognormal", "dirichlet", "gumbel_softmax"])
def test_no_key_at_all_has_no_divergence(alignment, prior):
    layer = keras_vattn.Attention(alignment=alignment, prior=prior)
    layer(X, X)
    assert (layer(X, X[:, :0], training=True).numpy() == 0).all()
    assert float(layer.losses[0]) == 0.0
