"""posterior_predictive traces a model once, and again where the model has changed."""

import concurrent.futures
import copy
import gc
import sys
import weakref

import keras
import numpy as np
import pytest
from keras import layers
from predictive_cases import D, X, predict
from tiers import slow_after

import keras_vattn
from keras_vattn import posterior_predictive as draw
from keras_vattn.draws import kept_functions
from keras_vattn.support.keras_private import unlocked

TAU = keras.optimizers.schedules.PiecewiseConstantDecay([0], [2.0, 0.1])


@keras.saving.register_keras_serializable(package="tests")
class Counted(layers.Layer):
    """Counts the calls of its Python code, and multiplies by a factor."""

    def __init__(self, factor=1.0, **kwargs):
        super().__init__(**kwargs)
        self.factor, self.calls = factor, []

    def call(self, x):
        self.calls.append(x)
        return self.factor * x

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


def model_of(rate=0.5, alignment=None, temperature=1.0, factor=1.0):
    keras.utils.set_random_seed(1)
    inputs = keras.Input((None, D))
    x = layers.Dropout(rate, name="dropout")(Counted(factor, name="counted")(inputs))
    context = keras_vattn.GaussianContext(temperature=temperature)
    alignment = alignment or keras_vattn.GumbelSoftmax(TAU)
    return keras.Model(inputs, keras_vattn.Attention("bilinear", alignment, context, name="attention")(x, x))


def num_traces(model):
    return len(model.get_layer("counted").calls)


def test_a_second_call_traces_nothing():
    model = model_of()
    model.compile("sgd", "mse")
    first, traces = draw(model, X, 4, seed=1), num_traces(model)
    np.testing.assert_array_equal(draw(model, X, 4, seed=1), first)
    assert draw(model, X[:3], 2, seed=1).shape == (2, 3, *first.shape[2:])
    assert (draw(model, X, 4, seed=2) != first).all() and (draw(model, X, 4) != draw(model, X, 4)).all()
    assert num_traces(model) == traces
    model.fit(X, X, validation_data=(X, X), verbose=0)
    predict(model)
    traces = num_traces(model)
    assert (draw(model, X, 4, seed=1) != first).any()
    assert num_traces(model) == traces


def test_what_is_kept_has_been_traced(monkeypatch):
    """Who has the turn would wait for ever for a thread that waits for it where the function is first called."""

    def kept(*arguments):
        function = kept_functions.kept_function(*arguments)
        traces.append(num_traces(model))
        return function

    model = model_of()
    traces = [num_traces(model)]
    monkeypatch.setattr(sys.modules["keras_vattn.draws.posterior_predictive"], "kept_function", kept)
    draw(model, X, 2)
    assert traces == [traces[0], traces[0] + 1] == [traces[0], num_traces(model)]


def test_each_set_of_options_has_a_function_of_its_own():
    def calls(model):
        yield draw(model, X, 3, seed=1)
        yield draw(model, X, 3, seed=1, dropout=True)
        yield draw(model, X, 3, seed=1, dropout=True, posterior=False)
        yield draw(model, X, 3, seed=1, max_rows=1)
        yield draw(model, X[:, :2], 3, seed=1)

    model = model_of()
    first, traces = [*calls(model)], num_traces(model)
    for x, y in zip(first, calls(model), strict=True):
        np.testing.assert_array_equal(x, y)
    assert num_traces(model) == traces
    assert (first[0] != first[1]).any() and (first[1] != first[2]).any()


def test_variables_are_read_in_every_call():
    model, other = model_of(), model_of()
    first, traces = draw(model, X, 4, seed=1, dropout=True), num_traces(model)
    for changed in (model, other):
        changed.get_layer("attention").training_calls.assign(5)  # tau is that of the count
    second = draw(model, X, 4, seed=1, dropout=True)
    for changed in (model, other):
        changed.set_weights([2.0 * x for x in changed.get_weights()])
    third = draw(model, X, 4, seed=1, dropout=True)
    assert num_traces(model) == traces
    assert (first != second).any() and (second != third).any()
    np.testing.assert_allclose(third, draw(other, X, 4, seed=1, dropout=True), rtol=1e-5, atol=1e-6)


def test_changed_attributes_count():
    """One after the other; together they make the model that was made with them."""
    model = model_of(alignment=keras_vattn.Weibull(1.0))
    attention, draws = model.get_layer("attention"), [draw(model, X, 4, seed=1, dropout=True)]
    for owner, name, value in (
        (model.get_layer("dropout"), "rate", 0.1),
        (attention.alignment, "k", 9.0),
        (attention.context, "temperature", 3.0),
        (model.get_layer("counted"), "factor", 2.0),
    ):
        setattr(owner, name, value)
        draws.append(draw(model, X, 4, seed=1, dropout=True))
        assert (draws[-1] != draws[-2]).any()
    made = model_of(0.1, keras_vattn.Weibull(9.0), 3.0, 2.0)
    np.testing.assert_allclose(draws[-1], draw(made, X, 4, seed=1, dropout=True), rtol=1e-5, atol=1e-6)


def test_a_replaced_layer_counts():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.latent, self.head = keras_vattn.GaussianLatent(2), Counted(1.0)

        def call(self, x):
            return self.head(self.latent(x))

    model = Model()
    model(X)
    first = draw(model, X, 4, seed=1)
    with unlocked(model):
        model.head = Counted(-2.0)
    np.testing.assert_array_equal(draw(model, X, 4, seed=1), -2.0 * first)


def test_a_context_of_draws_counts():
    """Without the posterior a layer draws where the context has marked it."""
    model = model_of(rate=1e-9)
    options = {"seed": 1, "dropout": True, "posterior": False, "max_rows": 1}
    outside = draw(model, X, 2, **options)
    with keras_vattn.posterior_draws(model, seed=3):
        inside, expected = draw(model, X, 2, **options), model(X)
    np.testing.assert_allclose(inside[0], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(draw(model, X, 2, **options), outside)
    assert np.abs(inside - outside).max() > 1e-3


def test_the_function_goes_with_the_model():
    model = model_of()
    draw(model, X, 4, dropout=True)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("copied", slow_after([keras.models.clone_model, copy.deepcopy]))
def test_a_copy_draws_for_itself(copied):
    model = model_of()
    first = draw(model, X, 4, seed=1)
    other = copied(model)
    other.set_weights([0.0 * x for x in model.get_weights()])
    of_zeros = draw(other, X, 4, seed=1)
    np.testing.assert_array_equal(draw(model, X, 4, seed=1), first)
    model.set_weights(other.get_weights())
    np.testing.assert_allclose(draw(model, X, 4, seed=1), of_zeros, rtol=1e-5, atol=1e-6)
    assert (of_zeros != first).any()


def test_threads_share_the_function():
    model = model_of()
    traces = num_traces(model)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        drawn = [*threads.map(lambda seed: draw(model, X, 4, seed=seed), range(4))]
    assert num_traces(model) == traces + 1
    for seed, draws in enumerate(drawn):
        np.testing.assert_array_equal(draws, draw(model, X, 4, seed=seed))


@pytest.mark.slow
def test_few_functions_are_kept(monkeypatch):
    monkeypatch.setattr(kept_functions, "MOST", 2)
    model = model_of()
    for length in (1, 2, 3):
        draw(model, X[:, :length], 2)
    traces = num_traces(model)
    draw(model, X[:, :3], 2)
    draw(model, X[:, :2], 2)
    assert num_traces(model) == traces
    draw(model, X[:, :1], 2)
    assert num_traces(model) > traces
