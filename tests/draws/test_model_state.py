"""Tests that `posterior_predictive` does not change the model."""

import keras
import numpy as np
import pytest
from keras import layers
from predictive_cases import D, N, T, X, predict, sequence_model

import keras_vattn
from keras_vattn import GaussianAttention, GaussianLatent
from keras_vattn import posterior_predictive as draw
from keras_vattn.support.keras_private import flatten_layers


def full_model():
    keras.utils.set_random_seed(3)
    inputs = keras.Input((T, D))
    x = layers.BatchNormalization()(layers.Dense(D)(inputs))
    x = layers.SimpleRNN(D, return_sequences=True, dropout=0.2, unroll=True)(layers.Dropout(0.2)(x))
    x = GaussianAttention(dropout=0.2, kl_annealing=keras_vattn.LinearAnnealing(10))(x, x)
    model = keras.Model(inputs, GaussianLatent(2)(x))
    model.compile("adam", "mse", metrics=["mae"])
    return model


def state(model):
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    attributes = [x for layer in flatten_layers(model) for x in vars(layer).values()]
    generators = [x.state for x in attributes if isinstance(x, keras.random.SeedGenerator)]
    return [keras.ops.convert_to_numpy(x.value) for x in [*variables, *generators]]


@pytest.mark.slow
def test_no_state_changes():
    model = full_model()
    model.fit(X, np.zeros((N, T, 2)), verbose=0)
    predict(model)
    function, before = model.predict_function, state(model)
    assert np.any(draw(model, X, 3, dropout=True) != 0)
    for old, new in zip(before, state(model), strict=True):
        np.testing.assert_array_equal(old, new)
    assert model.predict_function is function and not model.losses
    np.testing.assert_array_equal(predict(model), predict(model))


def test_an_error_leaves_the_model_unchanged():
    class Fails(layers.Layer):
        fails = False

        def call(self, x):
            if self.fails:
                raise RuntimeError("inside")
            return x

    model = sequence_model(lambda x: Fails()(layers.Dropout(0.5)(GaussianLatent(2)(x))))
    mean = predict(model)
    model.layers[-1].fails = True
    with pytest.raises(RuntimeError, match="inside"):
        draw(model, X, 2, dropout=True)
    model.layers[-1].fails = False
    np.testing.assert_array_equal(predict(model), mean)
