"""Tests that the weights of a layer have different initial values."""

import keras
import numpy as np
import pytest

import keras_vattn

WIDTH = 6
LAYERS = {
    "additive": lambda: keras_vattn.Additive(WIDTH),
    "location-sensitive": lambda: keras_vattn.LocationSensitive(units=WIDTH),
    "gaussian": lambda: keras_vattn.GaussianAttention("additive"),
    "contextual-prior": lambda: keras_vattn.Attention(
        alignment="weibull", prior=keras_vattn.ContextualPrior(hidden_units=WIDTH)
    ),
    "latent": lambda: keras_vattn.GaussianLatent(WIDTH),
    "lstm": lambda: keras_vattn.AttentionDecoder(
        WIDTH, keras_vattn.Attention("additive"), num_layers=3, kernel_initializer="glorot_uniform"
    ),
    "gru-uniform": lambda: keras_vattn.AttentionDecoder(
        WIDTH,
        keras_vattn.Attention("additive"),
        cell="gru",
        kernel_initializer=keras.initializers.RandomUniform(-0.1, 0.1),
        recurrent_initializer=keras.initializers.RandomUniform(-0.1, 0.1),
    ),
}


@pytest.mark.parametrize("name", list(LAYERS))
def test_weights_of_one_shape_differ(name):
    """Weights of one shape differ, although one Keras initializer returns the same values in every call."""
    layer, shape = LAYERS[name](), (2, 3, WIDTH)
    layer.build(shape) if name == "latent" else layer.build(shape, shape)
    matrices = [w.numpy() for w in layer.trainable_weights if len(w.shape) > 1 and 1 not in w.shape]
    for index, one in enumerate(matrices):
        for other in matrices[:index]:
            assert one.shape != other.shape or not np.array_equal(one, other)
