"""Tests draws of `posterior_predictive`: posterior moments, independent noise in every row, and seeds."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from predictive_cases import D, N, T, X, latent_model

from keras_vattn import GaussianLatent, Sampler
from keras_vattn import posterior_predictive as draw


@pytest.mark.slow
def test_latent_draws_have_the_posterior_moments():
    """Means and standard deviations of 4 000 draws are within 4.5 standard errors (2 x 30 values)."""
    model = latent_model()
    draws = draw(model, X, 4_000, seed=1, max_rows=2_000)
    q = model.layers[-1].posterior_distribution(X)
    assert draws.shape == (4_000, N, T, 2) and isinstance(draws, np.ndarray)
    standard_error = q.stddev().numpy() / np.sqrt(4_000)
    assert (np.abs(draws.mean(axis=0) - q.mean()) < 4.5 * standard_error).all()
    assert (np.abs(draws.std(axis=0, ddof=1) - q.stddev()) < 4.5 * standard_error / np.sqrt(2)).all()


@pytest.mark.parametrize("max_rows", [1, 64])
def test_rows_batches_and_draws_do_not_share_noise(max_rows):
    """With 2 batches of equal examples and 8 draws, correlations of 120 pairs of rows are within 5 standard errors."""
    inputs = keras.Input((500,))
    latent = GaussianLatent(500)
    model = keras.Model(inputs, latent(inputs))
    x = np.ones((2, 500), "float32")
    q = latent.posterior_distribution(x)
    noise = (draw(model, x, 8, seed=1, batch_size=1, max_rows=max_rows) - q.mean()) / q.stddev()
    correlations = np.corrcoef(np.reshape(noise, (16, 500)))[np.triu_indices(16, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(500)


def test_a_layer_called_twice_draws_twice():
    inputs = keras.Input((D,))
    latent = GaussianLatent(3)
    model = keras.Model(inputs, [latent(inputs), latent(inputs)])
    first, second = draw(model, X[:, 0], 2, seed=1)
    assert (first != second).all()


@pytest.mark.slow
def test_seeds():
    model = latent_model()
    first, sampler = draw(model, X, 4, seed=3), Sampler(model)
    for same in (3, tf.constant(3), tf.constant([3, 0])):
        np.testing.assert_array_equal(sampler(X, 4, seed=same), first)
    assert (sampler(X, 4, seed=4) != first).all()


def test_draws_without_a_seed_follow_the_seed_of_keras():
    sampler, draws = Sampler(latent_model()), []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed)
        draws.append([sampler(X, 2), sampler(X, 2)])
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0][0] != draws[0][1]).all() and (draws[0][0] != draws[2][0]).all()
