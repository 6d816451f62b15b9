"""Tests the KL of two diagonal Gaussians in float32 against TensorFlow Probability and a series in float64."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_probability.python import distributions as tfd

from keras_vattn.distributions.normal import MAX_LOG_SCALE, Normal, diagonal_normal

GENERATOR = np.random.default_rng(0)


def divergence_of(mean, log_scale, prior_mean=0.0, prior_log_scale=None):
    return Normal(mean, log_scale).kl_divergence(Normal(prior_mean, prior_log_scale))


def reference(mean, log_scale, prior_mean, prior_log_scale):
    q = tfd.Normal(np.float64(mean), np.exp(np.float64(log_scale)))
    return tfd.kl_divergence(q, tfd.Normal(np.float64(prior_mean), np.exp(np.float64(prior_log_scale)))).numpy()


def test_with_a_mean_and_a_log_scale_of_the_prior():
    parameters = [GENERATOR.normal(size=(7, 5)).astype("float32") for _ in range(4)]
    np.testing.assert_allclose(divergence_of(*parameters), reference(*parameters), rtol=1e-5)
    q, p = diagonal_normal(*parameters[:2]), diagonal_normal(*parameters[2:])
    np.testing.assert_allclose(q.kl_divergence(p), reference(*parameters).sum(-1), rtol=1e-5)
    mean, log_scale, prior_mean, prior_log_scale = parameters
    zeros = np.zeros_like(mean)
    for prior in ((0.0, None), (prior_mean, None), (0.0, prior_log_scale)):
        arguments = [zeros if x is None else x for x in prior]
        by_dimension = divergence_of(mean, log_scale, *prior)
        np.testing.assert_allclose(by_dimension, reference(mean, log_scale, *arguments), rtol=1e-5)


@pytest.mark.parametrize("distance", [1e-1, 1e-3, 1e-5])
def test_close_to_the_prior(distance):
    """For log sigmas at distance d, KL = d^2 - 2/3 d^3 + ... The usual formula would return only rounding errors."""
    prior = GENERATOR.normal(size=50).astype("float32")
    log_scale = prior + np.float32(distance)
    log_ratio = 2.0 * (np.float64(log_scale) - np.float64(prior))
    # Sum the series of exp(x) - 1 - x.
    gap = sum(log_ratio**n / np.prod(np.arange(1.0, n + 1)) for n in range(2, 12))
    mean = np.zeros_like(prior)
    np.testing.assert_allclose(divergence_of(mean, log_scale, mean, prior), 0.5 * gap, rtol=1e-5)
    standard = divergence_of(mean, np.full_like(prior, distance))
    log_ratio = 2.0 * np.float64(np.float32(distance))
    expected = 0.5 * sum(log_ratio**n / np.prod(np.arange(1.0, n + 1)) for n in range(2, 12))
    np.testing.assert_allclose(standard, np.full(50, expected), rtol=1e-5)


def test_at_every_distance_from_the_prior():
    """No digit is lost where the implementation switches from a series to the exponential."""
    log_scale = np.linspace(-0.6, 0.6, 2401).astype("float32")
    log_ratio = 2.0 * np.float64(log_scale)
    gap = sum(log_ratio**n / np.prod(np.arange(1.0, n + 1)) for n in range(2, 25))
    divergence = divergence_of(np.zeros_like(log_scale), log_scale)
    np.testing.assert_allclose(divergence, 0.5 * gap, rtol=1e-6)


def test_finite_up_to_the_limits_of_log_sigma():
    limits = np.array([-MAX_LOG_SCALE, 0.0, MAX_LOG_SCALE], "float32")
    means = np.array([-65504.0, 0.0, 65504.0], "float32")
    grid = [tf.constant(x) for x in np.meshgrid(means, limits, means, limits)]
    with tf.GradientTape() as tape:
        tape.watch(grid)
        divergence = divergence_of(*grid)
    np.testing.assert_allclose(divergence, reference(*(x.numpy() for x in grid)), rtol=1e-5, atol=1e-30)
    assert (divergence.numpy() >= 0).all()
    assert all(np.isfinite(gradient).all() for gradient in tape.gradient(divergence, grid))


def test_densities():
    x, mean, log_scale = (GENERATOR.normal(size=20).astype("float32") for _ in range(3))
    for arguments in (None, log_scale):
        expected = tfd.Normal(np.float64(mean), 1.0 if arguments is None else np.exp(np.float64(log_scale))).log_prob(x)
        np.testing.assert_allclose(Normal(mean, arguments).log_prob(x), expected, rtol=1e-5)


def test_gradients():
    """Gradients match the closed form in float64, even if both distributions are equal."""
    mean, log_scale, prior_mean, prior_log_scale = (GENERATOR.normal(size=20).astype("float32") for _ in range(4))
    prior_mean[:5], prior_log_scale[:5] = mean[:5], log_scale[:5]
    arguments = [tf.constant(x) for x in (mean, log_scale, prior_mean, prior_log_scale)]
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        divergence = divergence_of(*arguments)
    mean, log_scale, prior_mean, prior_log_scale = (
        np.float64(x) for x in (mean, log_scale, prior_mean, prior_log_scale)
    )
    by_mean = (mean - prior_mean) * np.exp(-2 * prior_log_scale)
    by_log_scale = np.expm1(2 * (log_scale - prior_log_scale))
    by_prior = -by_log_scale - (mean - prior_mean) * by_mean
    for gradient, expected in zip(
        tape.gradient(divergence, arguments), (by_mean, by_log_scale, -by_mean, by_prior), strict=True
    ):
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)
