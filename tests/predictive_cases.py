"""An input and small models for the tests of posterior_predictive."""

import keras
import numpy as np

from keras_vattn import GaussianLatent

N, T, D = 5, 3, 4
X = np.random.default_rng(1).normal(size=(N, T, D)).astype("float32")


def sequence_model(function):
    inputs = keras.Input((None, D))
    return keras.Model(inputs, function(inputs))


def latent_model(units=2, **options):
    return sequence_model(GaussianLatent(units, **options))


def self_attention(layer, **options):
    return lambda x: layer(**options)(x, x)


def predict(model, inputs=X):
    return model.predict(inputs, verbose=0)
