"""Tests that a sampler traces a model once and, in any thread, returns the draws of `posterior_predictive`."""

import concurrent.futures
import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from predictive_cases import D, X

import keras_vattn
from keras_vattn import Sampler, posterior_predictive

TAU = keras.optimizers.schedules.PiecewiseConstantDecay([0], [2.0, 0.1])


class CountsCalls(layers.Layer):
    """Records each execution of its Python code."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.calls = []

    def call(self, x):
        self.calls.append(x)
        return x * 1.0


def attention_model():
    keras.utils.set_random_seed(1)
    inputs = keras.Input((None, D))
    x = layers.Dropout(0.5)(CountsCalls(name="counted")(inputs))
    attention = keras_vattn.Attention("bilinear", keras_vattn.GumbelSoftmax(TAU), name="attention")
    return keras.Model(inputs, layers.Dropout(0.5)(attention(x, x)))


def num_traces(model):
    return len(model.get_layer("counted").calls)


def test_a_second_call_traces_nothing():
    model = attention_model()
    model.compile("sgd", "mse")
    sampler = Sampler(model)
    first, traces = sampler(X, 4, seed=1), num_traces(model)
    np.testing.assert_array_equal(first, posterior_predictive(model, X, 4, seed=1))
    assert num_traces(model) == traces + 1
    np.testing.assert_array_equal(sampler(X, 4, seed=1), first)
    assert sampler(X[:3], 2, seed=1).shape == (2, 3, *first.shape[2:])
    assert (sampler(X, 4, seed=2) != first).all() and (sampler(X, 4) != sampler(X, 4)).all()
    assert num_traces(model) == traces + 1


def test_variables_are_read_in_every_call():
    model, other = attention_model(), attention_model()
    sampler = Sampler(model, dropout=True)
    first, traces = sampler(X, 4, seed=1), num_traces(model)
    for changed in (model, other):
        changed.get_layer("attention").training_calls.assign(5)  # tau depends on the count
    second = sampler(X, 4, seed=1)
    for changed in (model, other):
        changed.set_weights([2.0 * x for x in changed.get_weights()])
    third = sampler(X, 4, seed=1)
    assert num_traces(model) == traces
    assert (first != second).any() and (second != third).any()
    expected = posterior_predictive(other, X, 4, seed=1, dropout=True)
    np.testing.assert_allclose(third, expected, rtol=1e-5, atol=1e-6)


def test_the_options_of_the_sampler_decide_what_is_random():
    model = attention_model()
    samplers = [Sampler(model), Sampler(model, dropout=True), Sampler(model, dropout=True, posterior=False)]
    draws = [sampler(X, 20, seed=1) for sampler in samplers]
    assert [(x == 0).any() for x in draws] == [False, True, True]
    assert all(x.std(axis=0).min() > 0 for x in draws)


@pytest.mark.slow
def test_outer_requests_have_no_effect():
    model = attention_model()
    for options in ({"posterior": False, "dropout": True}, {}):
        draws = posterior_predictive(model, X, 4, seed=1, **options)
        with keras_vattn.posterior_draws(model, 2), Sampler(model, dropout=True).drawn_from(3):
            np.testing.assert_array_equal(posterior_predictive(model, X, 4, seed=1, **options), draws)


def test_every_layer_has_its_own_seeds():
    """Each layer has its own seed, even if one layer samples in a loop and another has no seed generator."""

    class Loops(layers.Layer):
        def __init__(self):
            super().__init__()
            self.rate, self.seed_generator = 0.0, keras.random.SeedGenerator(1)

        def call(self, x):
            draw = lambda: keras.random.uniform(keras.ops.shape(x), seed=self.seed_generator)  # noqa: E731
            return keras.ops.fori_loop(0, 1, lambda i, y: y + draw(), 0.0 * x)

    class Unseeded(layers.Layer):
        def call(self, x):
            return keras.random.uniform(keras.ops.shape(x))

    inputs = keras.Input((50,))
    drawn = [layers.Dropout(0.5)(inputs), layers.Dropout(0.5)(inputs), Loops()(inputs), Unseeded()(inputs)]
    sampler, x = Sampler(keras.Model(inputs, drawn), dropout=True), np.ones((2, 50), "float32")
    draws = sampler(x, 3, seed=1)
    assert (draws[0] != draws[1]).any() and (draws[2] != draws[3]).all()
    for first, second in zip(draws, sampler(x, 3, seed=1), strict=True):
        np.testing.assert_array_equal(first, second)
        assert (first[0] != first[1]).any() and (first[:, 0] != first[:, 1]).any()


def test_threads_share_an_untraced_sampler():
    """A sampler does not affect other threads that call the model itself."""
    model = attention_model()
    mean, sampler, traces = np.asarray(model(X)), Sampler(model, dropout=True), num_traces(model) + 1
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        drawn = [threads.submit(sampler, X, 4, seed=seed) for seed in range(4)]
        plain = [threads.submit(model, X) for _ in range(4)]
        drawn, plain = [x.result(300) for x in drawn], [x.result(300) for x in plain]
    assert num_traces(model) == traces + 4
    for seed, draws in enumerate(drawn):
        np.testing.assert_array_equal(draws, sampler(X, 4, seed=seed))
    for x in plain:
        np.testing.assert_array_equal(x, mean)


def test_an_unbuilt_model_is_refused():
    with pytest.raises(ValueError, match=r"needs a built model: call the model once\. Received: .*\.built=False"):
        Sampler(keras.Sequential([keras_vattn.GaussianLatent(2)]))


def test_a_call_in_a_function_is_refused():
    sampler = Sampler(attention_model())
    with pytest.raises(ValueError, match="called eagerly"):
        tf.function(lambda: sampler(X, 2))()


def test_the_traced_functions_are_freed_with_the_sampler():
    model = attention_model()
    sampler = Sampler(model, dropout=True)
    sampler(X, 4)
    reference = weakref.ref(sampler)
    del sampler
    gc.collect()
    assert reference() is None
