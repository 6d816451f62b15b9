"""Tests behaviour that stochastic layers share and the battery does not check."""

import numpy as np
import pytest
import tensorflow as tf

import keras_vattn

X = np.random.default_rng(0).normal(size=(4, 3, 5)).astype("float32")


@pytest.mark.parametrize(
    "layer",
    [
        keras_vattn.GaussianAttention("bilinear", context_prior="mean", seed=1),
        keras_vattn.BayesianAttention(distribution="weibull", score="bilinear", seed=1),
        keras_vattn.Attention("bilinear", "hard", seed=1),
    ],
    ids=lambda layer: type(layer).__name__,
)
@pytest.mark.parametrize("graph", [False, True])
def test_a_source_of_length_zero(layer, graph):
    """If no row has a valid key, the context is zero, without noise or KL, and gradients are zero."""
    layer(X, X)

    def run(query, value):
        with tf.GradientTape() as tape:
            tape.watch([query, value])
            context = layer(query, value, training=True)
            objective = tf.reduce_sum(context) + sum(layer.losses)
        sources = [query, value, *(weight.value for weight in layer.trainable_weights)]
        return context, objective, *tape.gradient(objective, sources, unconnected_gradients="zero")

    results = (tf.function(run, autograph=False) if graph else run)(tf.constant(X), tf.zeros((4, 0, 5)))
    for x in results:
        np.testing.assert_array_equal(x, np.zeros(x.shape))
    assert results[0].shape == (4, 3, 5)


@pytest.mark.parametrize(("examples", "expected"), [(0.5, 24.0), (4, 3.0), (0, 0.0)])
def test_the_number_of_examples_can_be_any_number(examples, expected):
    layer = keras_vattn.StochasticLayer()
    layer.track_divergence()
    for number in (examples, tf.constant(examples, tf.float32)):
        layer.add_divergence(tf.ones((4, 3)), examples=number)
        assert float(layer.losses[-1]) == expected
