"""Draws in one thread while another thread uses the same layers."""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from predictive_cases import X, latent_model, predict
from thread_cases import SECONDS, elsewhere, has_nothing_of_ours, seeded, squares
from tiers import slow_after

from keras_vattn import GaussianAttention, GaussianLatent, posterior_draws
from keras_vattn import posterior_predictive as draw


def test_contexts_may_be_left_in_any_order():
    model = latent_model()
    mean, first, second = predict(model), seeded(model, 1), seeded(model, 2)
    one, two = posterior_draws(model, 1), posterior_draws(model, 2)
    one.__enter__()
    np.testing.assert_array_equal(predict(model), first)
    two.__enter__()
    np.testing.assert_array_equal(predict(model), second)
    one.__exit__(None, None, None)
    np.testing.assert_allclose(model(X), second, rtol=1e-6)
    assert np.abs(predict(model) - mean).min() > 0
    two.__exit__(None, None, None)
    np.testing.assert_array_equal(predict(model), mean)
    np.testing.assert_allclose(model(X), mean, rtol=1e-6)
    assert has_nothing_of_ours(model)


@pytest.mark.parametrize("traced_before", slow_after([True, False]))
def test_another_thread_gets_the_mean_and_leaves_the_draws(traced_before):
    model = latent_model()
    model.compile(metrics=["mse"])
    mean, expected = np.asarray(model(X)), seeded(model, 1)
    if traced_before:
        predict(model)
        squares(model)
    with posterior_draws(model, 1):
        np.testing.assert_allclose(elsewhere(model, X), mean, rtol=1e-5)
        np.testing.assert_allclose(elsewhere(predict, model), mean, rtol=1e-5)
        np.testing.assert_array_equal(predict(model), expected)
        np.testing.assert_allclose(elsewhere(predict, model), mean, rtol=1e-5)
        assert np.abs(predict(model) - mean).min() > 0
        assert squares(model) == pytest.approx(np.mean(expected**2), rel=1e-5)
        assert elsewhere(squares, model) == pytest.approx(np.mean(mean**2), rel=1e-5)
    np.testing.assert_allclose(predict(model), mean, rtol=1e-5)
    assert has_nothing_of_ours(model)


def test_a_predict_that_is_under_way_goes_on_without_draws():
    """Its batches are predicted before, in and after the context of another thread."""
    model = latent_model()
    mean, entered, go_on = predict(model), threading.Event(), threading.Event()

    class Waits(keras.callbacks.Callback):
        def on_predict_batch_begin(self, batch, logs=None):
            if batch == 1:
                entered.set()
                assert go_on.wait(SECONDS)

    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        result = threads.submit(model.predict, X, batch_size=2, verbose=0, callbacks=[Waits()])
        assert entered.wait(SECONDS)
        with posterior_draws(model, 1):
            assert np.any(predict(model) != mean)
            go_on.set()
            np.testing.assert_allclose(result.result(SECONDS), mean, rtol=1e-5)


def test_a_function_draws_where_it_was_traced_inside():
    model = latent_model()
    mean = np.asarray(model(X))
    inside, outside = tf.function(lambda x: model(x)), tf.function(lambda x: model(x))
    with posterior_draws(model, 1):
        drawn = inside(X)
        np.testing.assert_allclose(elsewhere(outside, X), mean, rtol=1e-5)
    assert np.any(np.abs(drawn - mean) > 1e-3)
    np.testing.assert_array_equal(elsewhere(inside, X), drawn)
    np.testing.assert_allclose(outside(X), mean, rtol=1e-5)


def test_replica_threads_enter_a_context_themselves(two_replicas):
    with two_replicas.scope():
        latent = GaussianLatent(2)
    mean = latent(X)

    def inside(seed):
        with posterior_draws(latent, seed):
            return latent(X)

    first, second = two_replicas.experimental_local_results(two_replicas.run(inside, args=(2,)))
    assert np.any(first != mean) and np.any(second != mean) and np.any(first != second)
    assert has_nothing_of_ours(latent)


def test_a_predict_of_replicas_is_refused(two_replicas):
    """Its threads do not inherit the context."""
    with two_replicas.scope():
        model = latent_model()
    mean = predict(model)
    with posterior_draws(model), pytest.raises(ValueError, match="Received: 2 replicas"):
        predict(model)
    np.testing.assert_array_equal(predict(model), mean)


def test_an_error_leaves_nothing_behind():
    model = latent_model()
    with contextlib.suppress(RuntimeError), posterior_draws(model, 1), posterior_draws(model.layers[-1], 2):
        predict(model)
        raise RuntimeError
    assert has_nothing_of_ours(model)


def test_a_context_ends_in_copies_of_it():
    """As a task has that outlives it; its `predict` leaves no function that draws."""
    model = latent_model()
    mean = predict(model)
    with posterior_draws(model, 1):
        drawn, copied = model(X), contextvars.copy_context()
        np.testing.assert_array_equal(copied.run(model, X), drawn)
    np.testing.assert_allclose(copied.run(model, X), mean, rtol=1e-5)
    np.testing.assert_array_equal(copied.run(predict, model), mean)
    np.testing.assert_array_equal(predict(model), mean)


def test_a_generator_that_another_thread_closes():
    model = latent_model()
    mean = predict(model)

    def drawing():
        with posterior_draws(model, 1):
            yield

    generator = drawing()
    next(generator)
    assert np.any(predict(model) != mean)
    elsewhere(generator.close)
    np.testing.assert_allclose(model(X), mean, rtol=1e-5)
    np.testing.assert_array_equal(predict(model), mean)
    assert has_nothing_of_ours(model)


def test_tasks_of_one_thread_draw_for_themselves():
    model = latent_model()
    mean, seeds = predict(model), (1, 2)
    expected = [seeded(model, seed) for seed in seeds]

    async def task(seed):
        with posterior_draws(model, seed) if seed else contextlib.nullcontext():
            await asyncio.sleep(0)
            result = predict(model)
            await asyncio.sleep(0)
        return result

    async def tasks():
        return await asyncio.gather(*(task(seed) for seed in (*seeds, None)))

    for result, x in zip(asyncio.run(tasks()), (*expected, mean), strict=True):
        np.testing.assert_allclose(result, x, rtol=1e-5)
    assert has_nothing_of_ours(model)


class Gate(layers.Layer):
    """Stops the first call of a thread that it is closed to, until it is opened."""

    def __init__(self):
        super().__init__()
        self.reached, self.opened = threading.Event(), threading.Event()

    def call(self, x):
        if threading.current_thread().name.startswith("drawing") and not self.reached.is_set():
            self.reached.set()
            assert self.opened.wait(SECONDS)
        return x


def gated(gate):
    inputs = keras.Input(X.shape[1:])
    x = layers.Dropout(0.5)(gate(layers.Dropout(0.5)(inputs)))
    x = GaussianAttention(dropout=0.5)(layers.BatchNormalization()(x), x)
    return keras.Model(inputs, GaussianLatent(2)(x))


@pytest.mark.slow
def test_a_plain_call_while_another_thread_traces_its_draws():
    gate = Gate()
    model = gated(gate)
    mean, predicted = np.asarray(model(X)), predict(model)
    training = tf.function(lambda: model(X, training=True))
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="drawing") as threads:
        drawn = threads.submit(draw, model, X, 3, dropout=True, seed=1)
        assert gate.reached.wait(SECONDS)
        np.testing.assert_array_equal(model(X), mean)
        np.testing.assert_array_equal(predict(model), predicted)
        assert np.any(training() != training())
        gate.opened.set()
        assert drawn.result(SECONDS).shape == (3, *mean.shape)
    assert has_nothing_of_ours(model)


def test_threads_enter_and_leave_contexts_of_one_model():
    model = latent_model()
    expected, mean = [np.asarray(seeded(model, seed)) for seed in range(4)], predict(model)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        drawn = [*threads.map(lambda seed: seeded(model, seed), [*range(4)] * 4)]
    for x, y in zip(drawn, expected * 4, strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(predict(model), mean)
    assert has_nothing_of_ours(model)
