"""Tests user-defined layers that draw."""

import keras
import numpy as np
import pytest
from predictive_cases import D, X, predict, sequence_model

import keras_vattn
from keras_vattn import posterior_draws, posterior_predictive


@keras.saving.register_keras_serializable(package="tests")
class Shifted(keras_vattn.StochasticLayer):
    """Returns x + s e with e ~ N(0, 1), and adds KL(N(x, s^2) || N(x, 1))."""

    def __init__(self, scale=0.5, **kwargs):
        super().__init__(**kwargs)
        self.scale = scale
        self.track_divergence()

    def call(self, x, training=None):
        divergence = (self.scale**2 - 1.0) / 2.0 - np.log(self.scale) + 0.0 * keras.ops.sum(x, axis=-1)
        self.add_divergence(divergence, training=training)
        seed = self.noise_seed(training)
        if seed is None:
            return x
        scale = self.scale * self.draw_temperature(training, 1.0)
        return x + scale * keras_vattn.random.normal(keras.ops.shape(x), seed)

    def get_config(self):
        return {**super().get_config(), **self.stochastic_config(), "scale": self.scale}


class IgnoresRequests(keras.layers.Layer):
    is_stochastic = True

    def call(self, x):
        return x


@pytest.mark.slow
def test_a_subclass_draws_and_has_its_divergence():
    model = sequence_model(Shifted(kl_weight=2.0, seed=1, name="shifted"))
    np.testing.assert_array_equal(predict(model), X)
    with posterior_draws(model, seed=3):
        first = predict(model)
    with posterior_draws(model, seed=3):
        second = predict(model)
    with posterior_draws(model, seed=3, temperature=2.0):
        np.testing.assert_allclose(predict(model) - X, 2.0 * (first - X), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(first, second)
    assert np.all(first != X)
    draws = posterior_predictive(model, X, 200, seed=1)
    # The standard deviation of 12 000 values is within 5 standard errors.
    assert abs((draws - X).std() - 0.5) < 5 * 0.5 / np.sqrt(2 * draws.size)
    divergence = X.shape[1] * (-0.375 + np.log(2.0))
    model.compile("sgd", lambda y, x: 0.0 * keras.ops.sum(x, axis=(1, 2)))
    logs = model.evaluate(X, X, verbose=0, return_dict=True)
    assert logs["loss"] == pytest.approx(2.0 * divergence, rel=1e-5)
    assert logs["shifted_kl"] == pytest.approx(divergence, rel=1e-5)


@pytest.mark.parametrize("nested", [False, True])
def test_a_layer_that_reads_no_request_raises(nested):
    layer = IgnoresRequests(name="own")
    model = sequence_model(lambda x: keras_vattn.GaussianLatent(2)(layer(x)))
    outer = keras.Sequential([keras.Input((None, D)), model]) if nested else model
    message = r"keras_vattn.StochasticLayer.*Received: IgnoresRequests\(name='own'\)"
    with pytest.raises(ValueError, match=message), posterior_draws(outer):
        pass
    with pytest.raises(ValueError, match=message):
        posterior_predictive(outer, X, 2)
