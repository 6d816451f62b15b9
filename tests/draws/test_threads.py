"""Tests draws in one thread while other threads use the same layers."""

import asyncio
import concurrent.futures
import contextlib
import contextvars

import keras
import numpy as np
import pytest
from predictive_cases import X, latent_model, predict

from keras_vattn import posterior_draws


def in_another_thread(function, *arguments):
    """Run a function in another thread and return its result."""
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        return threads.submit(function, *arguments).result(300)


def predict_from_seed(model, seed):
    with posterior_draws(model, seed):
        return predict(model)


def mean_square(model):
    """Return the mean square of the outputs, computed by `evaluate`."""
    return model.evaluate(X, np.zeros((*X.shape[:2], 2)), verbose=0, return_dict=True)["mse"]


@pytest.mark.slow
def test_another_thread_gets_the_mean_and_leaves_the_draws():
    model = latent_model()
    model.compile(metrics=["mse"])
    mean, expected = np.asarray(model(X)), predict_from_seed(model, 1)
    predict(model)
    mean_square(model)
    with posterior_draws(model, 1):
        np.testing.assert_allclose(in_another_thread(model, X), mean, rtol=1e-5)
        np.testing.assert_allclose(in_another_thread(predict, model), mean, rtol=1e-5)
        np.testing.assert_array_equal(predict(model), expected)
        np.testing.assert_allclose(in_another_thread(predict, model), mean, rtol=1e-5)
        assert np.abs(predict(model) - mean).min() > 0
        assert mean_square(model) == pytest.approx(np.mean(expected**2), rel=1e-5)
        assert in_another_thread(mean_square, model) == pytest.approx(np.mean(mean**2), rel=1e-5)
    np.testing.assert_allclose(predict(model), mean, rtol=1e-5)


@pytest.mark.slow
def test_predict_on_several_replicas_raises(two_replicas):
    """`predict` on several replicas raises an error, because replica threads do not inherit the context."""
    with two_replicas.scope():
        model = latent_model()
    mean = predict(model)
    with posterior_draws(model), pytest.raises(ValueError, match="Received: 2 replicas"):
        predict(model)
    np.testing.assert_array_equal(predict(model), mean)


@pytest.mark.slow
def test_asyncio_tasks_draw_independently():
    model = latent_model()
    mean, seeds = predict(model), (1, 2)
    expected = [predict_from_seed(model, seed) for seed in seeds]

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


@pytest.mark.slow
def test_threads_enter_and_leave_contexts_of_one_model():
    model = latent_model()
    expected, mean = [np.asarray(predict_from_seed(model, seed)) for seed in range(4)], predict(model)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        drawn = [*threads.map(lambda seed: predict_from_seed(model, seed), [*range(4)] * 2)]
    for x, y in zip(drawn, expected * 2, strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(predict(model), mean)


@pytest.mark.parametrize("method", ["predict", "fit"])
def test_a_context_may_exit_while_a_function_runs(method):
    model = latent_model()
    model.compile("sgd", "mse")
    context = posterior_draws(model, 1)
    context.__enter__()
    exit_callback = keras.callbacks.LambdaCallback(
        **{f"on_{'predict' if method == 'predict' else 'train'}_begin": lambda *_: context.__exit__(None, None, None)}
    )
    targets = [] if method == "predict" else [np.zeros((*X.shape[:2], 2))]
    getattr(model, method)(X, *targets, verbose=0, callbacks=[exit_callback])
    np.testing.assert_allclose(predict(model), model(X), rtol=1e-5, atol=1e-6)


def test_a_context_ends_in_its_copies():
    """After a context has ended, models in a copy of the context do not draw, and `predict` caches no drawing
    function."""
    model = latent_model()
    mean = predict(model)
    with posterior_draws(model, 1):
        drawn, copied = model(X), contextvars.copy_context()
        np.testing.assert_array_equal(copied.run(model, X), drawn)
    np.testing.assert_allclose(copied.run(model, X), mean, rtol=1e-5)
    np.testing.assert_array_equal(copied.run(predict, model), mean)
    np.testing.assert_array_equal(predict(model), mean)
