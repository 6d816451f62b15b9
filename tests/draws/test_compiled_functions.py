"""The compiled functions of a model in a context."""

import keras
import numpy as np
import pytest
from predictive_cases import X, latent_model, predict
from thread_cases import has_nothing_of_ours, squares

from keras_vattn import GaussianLatent, posterior_draws
from keras_vattn.draws.posterior_draws import CompiledFunction


@pytest.mark.parametrize("name", CompiledFunction.NAMES)
def test_the_model_has_its_own_function_again(name):
    model = latent_model()
    model.compile("sgd", "mse")
    getattr(model, f"make_{name}")()
    function = getattr(model, name)
    with posterior_draws(model):
        assert callable(getattr(model, name)) and getattr(model, name) is not function
    assert getattr(model, name) is function


def test_what_compile_inside_leaves_draws_no_more():
    model = latent_model()
    mean = predict(model)
    with posterior_draws(model):
        model.compile("adam", "mse", metrics=["mse"])
        assert np.abs(predict(model) - mean).min() > 0
    np.testing.assert_array_equal(predict(model), mean)
    assert squares(model) == pytest.approx(np.mean(mean**2), rel=1e-5)
    assert has_nothing_of_ours(model)


def test_several_steps_of_a_seed_in_one_call_are_refused():
    """They would have the same noise."""
    model = latent_model()
    model.compile("sgd", "mse", steps_per_execution=2)
    with posterior_draws(model, 1), pytest.raises(ValueError, match="Received: 1 replicas, steps_per_execution=2"):
        predict(model)
    mean = predict(model)
    with posterior_draws(model):
        assert np.abs(predict(model) - mean).min() > 0


def test_a_model_that_makes_its_functions_itself():
    class Own(keras.Model):
        def make_predict_function(self, force=False):
            super().make_predict_function(force=force)
            self.made = self.predict_function
            return self.predict_function

    inputs = keras.Input(X.shape[1:])
    model = Own(inputs, GaussianLatent(2)(inputs))
    mean = predict(model)
    with posterior_draws(model, 1):
        drawn = predict(model)
        assert np.any(drawn != mean)
    np.testing.assert_array_equal(predict(model), mean)
