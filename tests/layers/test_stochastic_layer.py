"""What stochastic layers share, where no layer of the battery shows it."""

import keras
import numpy as np
import pytest

import keras_vattn

X = np.random.default_rng(0).normal(size=(4, 3, 5)).astype("float32")


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
