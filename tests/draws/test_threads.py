"""Draws in one thread while another thread uses the same layers."""

import concurrent.futures
import contextlib
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from predictive_cases import X, latent_model, predict, sequence_model
from thread_cases import SECONDS, elsewhere, has_nothing_of_ours, seeded, squares
from tiers import slow_after

from keras_vattn import Attention, AttentionDecoder, GaussianAttention, GaussianLatent, posterior_draws, random
from keras_vattn import posterior_predictive as draw
from keras_vattn.draws.model_noise import ModelNoise


def test_a_thread_that_ends_inside_has_left():
    model, other, held = latent_model(), latent_model(), []
    mean = predict(model)

    def enter():
        held.append(posterior_draws(model, 1))
        held[0].__enter__()
        assert np.abs(predict(model) - mean).max() > 0

    elsewhere(enter)
    np.testing.assert_array_equal(predict(model), mean)
    # Another model's draws do not wait for it.
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(seeded, other, 2)
        try:
            waiting.result(20)
        finally:
            held[0].__exit__(None, None, None)
    assert has_nothing_of_ours(model) and has_nothing_of_ours(other)


def test_contexts_may_be_left_in_any_order():
    model = latent_model()
    mean, first, second = predict(model), seeded(model, 1), seeded(model, 2)
    one, two = posterior_draws(model, 1), posterior_draws(model, 2)
    one.__enter__()
    np.testing.assert_array_equal(predict(model), first)
    two.__enter__()
    np.testing.assert_array_equal(predict(model), second)
    one.__exit__(None, None, None)
    np.testing.assert_array_equal(predict(model), second)
    np.testing.assert_allclose(model(X), second, rtol=1e-6)
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
        np.testing.assert_array_equal(predict(model), expected)
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


def dropped(model, seed):
    with ModelNoise(model, dropout=True).drawn_from(random.as_seed(seed)):
        output = np.asarray(model(X))
    assert np.any(output == 0)
    return output


def waits(future):
    """Return whether a thread has not come to an end after a while."""
    concurrent.futures.wait([future], timeout=0.3)
    return not future.done()


@pytest.mark.parametrize("drawing", slow_after(["model", "dropout", "kept", "layer", "another"], 3))
def test_one_thread_draws_at_a_time(drawing):
    model, dropping = latent_model(), sequence_model(layers.Dropout(0.5))
    function = {
        "model": lambda: seeded(model, 2),
        "layer": lambda: seeded(keras.Model(model.inputs, model.outputs), 2),
        "another": lambda: seeded(latent_model(seed=1), 2).shape,
        "dropout": lambda: dropped(dropping, 2),
        "kept": lambda: draw(model, X, 2, seed=2),
    }[drawing]
    expected, first = function(), seeded(model, 1)
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        with posterior_draws(model, 1):
            second = threads.submit(function)
            assert waits(second)
            with posterior_draws(model, 1):
                np.testing.assert_array_equal(predict(model), first)
            np.testing.assert_array_equal(predict(model), first)
            assert waits(second)
        np.testing.assert_array_equal(second.result(SECONDS), expected)
    assert has_nothing_of_ours(model)


@pytest.mark.parametrize("collected", [False, True])
def test_a_context_that_is_left_elsewhere_ends_the_turn(collected):
    def steps():
        with posterior_draws(model, 1):
            yield predict(model)

    model = latent_model()
    mean, generators = predict(model), [steps()]
    assert np.any(elsewhere(next, generators[0]) != mean)
    np.testing.assert_array_equal(predict(model), mean)
    if collected:
        del generators[:]
    else:
        generators[0].close()
    assert has_nothing_of_ours(model)
    assert np.any(elsewhere(seeded, model, 1) != mean)


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


def test_replica_threads_draw_for_the_thread_that_started_them(two_replicas):
    with two_replicas.scope():
        model = sequence_model(lambda x: GaussianLatent(2)(x))
    x, mean = X[:4], np.asarray(model(X[:4]))
    with posterior_draws(model, 1):
        expected = predict(model, x)
        np.testing.assert_allclose(elsewhere(predict, model, x), mean, rtol=1e-5)
        np.testing.assert_array_equal(predict(model, x), expected)
    assert (np.abs(expected - mean) > 1e-4).any(axis=(1, 2)).all()
    np.testing.assert_allclose(predict(model, x), mean, rtol=1e-5)


@pytest.mark.slow
def test_replica_threads_of_a_loop_of_ones_own(two_replicas):
    with two_replicas.scope():
        model = sequence_model(lambda x: GaussianLatent(2)(x))
    mean = np.asarray(model(X))

    def run(traced):
        function = lambda: two_replicas.run(model, args=(tf.constant(X),))  # noqa: E731
        return two_replicas.experimental_local_results((tf.function(function) if traced else function)())

    for traced in (False, True):
        with posterior_draws(model, 1):
            first, second = run(traced)
            others = elsewhere(run, traced)
        assert np.any(first != second) and np.any(np.abs(first - mean) > 1e-3)
        for x in (*others, *run(traced)):
            np.testing.assert_allclose(x, mean, rtol=1e-5)


@pytest.mark.parametrize("around", [False, True])
def test_replica_threads_enter_a_context_themselves(two_replicas, around):
    with two_replicas.scope():
        latent = GaussianLatent(2)
    mean = latent(X)

    def inside(seed):
        with posterior_draws(latent, seed):
            return latent(X)

    with posterior_draws(latent, 1) if around else contextlib.nullcontext():
        first = two_replicas.experimental_local_results(two_replicas.run(inside, args=(2,)))
    with posterior_draws(latent, 2):
        expected = two_replicas.experimental_local_results(two_replicas.run(latent, args=(tf.constant(X),)))
    for x, y in zip(first, expected, strict=True):
        np.testing.assert_array_equal(x, y)
        assert np.any(x != mean)
    assert has_nothing_of_ours(latent)


def test_an_error_leaves_nothing_behind():
    model = latent_model()
    with contextlib.suppress(RuntimeError), posterior_draws(model, 1), posterior_draws(model.layers[-1], 2):
        predict(model)
        raise RuntimeError
    assert has_nothing_of_ours(model)


class Gate(layers.Layer):
    """Stops the first call of a thread that it is closed to, until it is opened; counts the threads that are inside."""

    def __init__(self):
        super().__init__()
        self.closed_to, self.reached, self.opened = None, threading.Event(), threading.Event()
        self.lock, self.inside, self.most = threading.Lock(), 0, 0

    def call(self, x):
        if threading.current_thread().name.startswith("drawing"):
            with self.lock:
                self.inside += 1
                self.most = max(self.most, self.inside)
            if not self.reached.is_set():
                self.reached.set()
                assert self.opened.wait(SECONDS)
            with self.lock:
                self.inside -= 1
        return x


def gated(gate):
    inputs = keras.Input(X.shape[1:])
    x = layers.Dropout(0.5)(gate(layers.Dropout(0.5)(inputs)))
    x = GaussianAttention(dropout=0.5)(layers.BatchNormalization()(x), x)
    return keras.Model(inputs, GaussianLatent(2)(x))


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["model", "layers"])
def test_two_calls_at_once_wait_for_each_other(shared):
    gate = Gate()
    model = gated(gate)
    other = model if shared == "model" else keras.Model(model.inputs, [model.outputs[0], model.layers[-2].output])
    mean = predict(model)
    expected = [draw(model, X, 3, dropout=True, seed=seed) for seed in (1, 2)]
    vars(model).pop("_kept_functions")  # The threads are to trace.
    with concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="drawing") as threads:
        first = threads.submit(draw, model, X, 3, dropout=True, seed=1)
        assert gate.reached.wait(SECONDS)
        second = threads.submit(draw, other, X, 3, dropout=True, seed=2)
        # Time for the second to come in, which it must not.
        concurrent.futures.wait([second], timeout=0.5)
        gate.opened.set()
        np.testing.assert_array_equal(first.result(SECONDS), expected[0])
        np.testing.assert_array_equal(keras.tree.flatten(second.result(SECONDS))[0], expected[1])
    assert gate.most == 1
    assert has_nothing_of_ours(model)
    np.testing.assert_array_equal(predict(model), mean)


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


@pytest.mark.slow
def test_many_threads_draw_what_one_draws():
    model = sequence_model(
        lambda x: AttentionDecoder(2, Attention(score="bilinear", alignment="weibull", dropout=0.3), dropout=0.3)(x, x)
    )
    expected = [draw(model, X, 2, dropout=True, seed=seed) for seed in range(4)]
    vars(model).pop("_kept_functions")  # The threads are to trace.
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda seed: draw(model, X, 2, dropout=True, seed=seed), range(4)))
    keras.tree.map_structure(np.testing.assert_array_equal, results, expected)
    assert has_nothing_of_ours(model)
