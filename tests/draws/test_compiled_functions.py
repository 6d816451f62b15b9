"""The compiled functions of a model in a context: `compile` inside, and functions that Keras makes there."""

import keras
import numpy as np
import pytest
from predictive_cases import X, latent_model, predict
from thread_cases import elsewhere, has_nothing_of_ours, seeded, squares

from keras_vattn import GaussianLatent, posterior_draws
from keras_vattn.draws import compiled_functions


def test_compile_inside():
    model = latent_model()
    model.compile("sgd", "mse", metrics=["mse"])
    mean, before = predict(model), squares(model)
    with posterior_draws(model, 1):
        drawn, drawn_before = predict(model), squares(model)
        model.compile("adam", "mae", metrics=["mse"])
        assert squares(model) == drawn_before != before
        np.testing.assert_array_equal(predict(model), drawn)
        np.testing.assert_array_equal(elsewhere(predict, model), mean)
        assert elsewhere(squares, model) == before
        np.testing.assert_array_equal(predict(model), drawn)
    np.testing.assert_array_equal(predict(model), mean)
    assert squares(model) == before
    assert has_nothing_of_ours(model)


@pytest.mark.parametrize("name", compiled_functions.NAMES)
def test_a_function_that_keras_made_inside_is_there_after_the_context_is_left(name):
    """Between making and calling it, in `predict`, `evaluate` or `fit`, another thread may leave the context."""
    model = latent_model()
    model.compile("sgd", "mse")
    with posterior_draws(model):
        getattr(model, f"make_{name}")()
    function = getattr(model, name)
    assert callable(function)
    getattr(model, f"make_{name}")()
    assert getattr(model, name) is function
    assert has_nothing_of_ours(model)


def test_a_context_is_left_between_the_making_of_a_function_and_its_call():
    class Leaves(keras.callbacks.Callback):
        def on_predict_begin(self, logs=None):
            context.__exit__(None, None, None)

    model = latent_model()
    mean, context = np.asarray(model(X)), posterior_draws(model, 1)
    context.__enter__()
    predicted = elsewhere(lambda: model.predict(X, verbose=0, callbacks=[Leaves()]))
    np.testing.assert_allclose(predicted, mean, rtol=1e-5)
    assert has_nothing_of_ours(model)


@pytest.mark.slow
def test_a_compile_inside_holds_for_training_afterwards():
    """With a rate of 0 nothing is learned, whatever the optimiser of before would have done."""
    model = latent_model()
    targets = np.zeros((*X.shape[:2], 2))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(X, targets, verbose=0)
    weights = model.get_layer(index=-1).trainable_variables
    before = [x.numpy() for x in weights]
    with posterior_draws(model, 1):
        model.compile(keras.optimizers.SGD(0.0), "mse")
        model.fit(X, targets, verbose=0, validation_data=(X, targets))
    model.fit(X, targets, verbose=0, validation_data=(X, targets))
    for old, new in zip(before, weights, strict=True):
        np.testing.assert_array_equal(old, new)
    assert has_nothing_of_ours(model)


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
        # What draws is the model's own at no moment: another thread would call it.
        assert isinstance(model.made, compiled_functions.FunctionByMarks) and np.any(drawn != mean)
        model.make_predict_function(force=True)
        np.testing.assert_array_equal(predict(model), drawn)
    np.testing.assert_array_equal(predict(model), mean)


def test_functions_of_contexts_that_are_left_are_dropped():
    model = latent_model()
    with posterior_draws(model):
        for seed in range(4):
            seeded(model, seed)
        assert len(model.predict_function.functions) == 1
    assert has_nothing_of_ours(model)
