import numpy as np
import pytest
import tensorflow as tf
from twins import twin_divergence

from keras_vattn import DenseKeys, GaussianContext
from keras_vattn.distributions import normal

GENERATOR = np.random.default_rng(1)
WEIGHTS = GENERATOR.dirichlet(np.ones(5), size=(2, 3)).astype("float32")
VALUE = GENERATOR.normal(size=(2, 5, 6)).astype("float32")


def built(**options):
    layer = GaussianContext(**options)
    layer(WEIGHTS, VALUE)
    for weight in layer.weights:
        weight.assign(np.random.default_rng(7).normal(size=weight.shape, scale=0.5))
    return layer


def test_the_mean_is_the_weighted_sum():
    np.testing.assert_allclose(built()(WEIGHTS, VALUE), WEIGHTS @ VALUE, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("hidden_units", [None, 3])
def test_log_sigma_is_the_formula_of_the_paper(hidden_units):
    layer = built(hidden_units=hidden_units)
    mean = WEIGHTS @ VALUE
    hidden = np.tanh(mean @ layer.hidden_kernel.numpy() + layer.hidden_bias.numpy())
    expected = hidden @ layer.log_scale_kernel.numpy() + layer.log_scale_bias.numpy()
    assert layer.hidden_bias.shape == (hidden_units or 6,)
    np.testing.assert_allclose(layer.posterior_parameters(mean)["log_scale"], expected, rtol=1e-5, atol=1e-6)


def closed_form(mean, log_scale, prior_mean):
    return (0.5 * (np.exp(2 * log_scale) + (mean - prior_mean) ** 2 - 1.0) - log_scale).sum(-1)


@pytest.mark.parametrize("prior", ["standard", "mean"])
def test_divergence_matches_the_closed_form_and_tfp(prior):
    layer = built(prior=prior)
    mean = tf.constant(WEIGHTS @ VALUE)
    parameters = layer.posterior_parameters(mean)
    prior_mean = layer.prior_parameters(VALUE, DenseKeys())
    q, p = layer.distribution(mean, parameters), layer.prior_distribution(mean, prior_mean)
    divergence = q.kl_divergence(p)
    average = 0.0 if prior == "standard" else VALUE.mean(1, keepdims=True)
    expected = closed_form(mean.numpy(), parameters["log_scale"].numpy(), average)
    np.testing.assert_allclose(divergence, expected, rtol=1e-5)
    np.testing.assert_allclose(twin_divergence(q, p), divergence, rtol=1e-5)


def test_draws_have_the_moments_of_the_posterior():
    """Over 20 000 samples, all 36 means are within 4 standard errors and all 36 variances within 5; seed 12."""
    layer, count = built(), 20_000
    mean = tf.constant(WEIGHTS @ VALUE)
    parameters = layer.posterior_parameters(mean)
    sigma = np.exp(parameters["log_scale"])
    draws = layer.sample(mean, parameters, layer.noise((count, *mean.shape), tf.constant([12, 0]))).numpy()
    assert (np.abs(draws.mean(0) - mean) < 4 * sigma / np.sqrt(count)).all()
    assert (np.abs(draws.var(0) / sigma**2 - 1.0) < 5 * np.sqrt(2.0 / count)).all()


def test_temperature_scales_sigma_and_zero_is_the_mean():
    layer = built()
    mean = tf.constant(WEIGHTS @ VALUE)
    parameters, noise = layer.posterior_parameters(mean), layer.noise(mean.shape, tf.constant([1, 2]))
    full, half = (layer.sample(mean, parameters, noise, temperature) - mean for temperature in (1.0, 0.5))
    np.testing.assert_allclose(half, full / 2, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(layer.sample(mean, parameters, noise, 0.0), mean)
    np.testing.assert_array_equal(layer.sample(mean, parameters, None), mean)


def test_h_bar_is_the_average_over_valid_positions():
    mask = np.array([[True, True, False, True, False], [False] * 5])
    prior_mean = built(prior="mean").prior_parameters(VALUE, DenseKeys(tf.constant(mask[:, None])))
    np.testing.assert_allclose(prior_mean[0, 0], VALUE[0][mask[0]].mean(0), rtol=1e-5, atol=1e-6)
    assert (prior_mean[1].numpy() == 0.0).all()


def test_gradients_flow_through_h_bar():
    """For a fixed posterior mean, d KL / d value is (h_bar - mean) / S at every valid position."""
    layer, value, mean = built(prior="mean"), tf.constant(VALUE), tf.constant(WEIGHTS @ VALUE)
    parameters = layer.posterior_parameters(mean)
    with tf.GradientTape() as tape:
        tape.watch(value)
        p = layer.prior_distribution(mean, layer.prior_parameters(value, DenseKeys()))
        divergence = layer.distribution(mean, parameters).kl_divergence(p)
    expected = (VALUE.mean(1, keepdims=True) - mean.numpy()).sum(1, keepdims=True) / 5
    np.testing.assert_allclose(
        tape.gradient(divergence, value), np.broadcast_to(expected, VALUE.shape), rtol=1e-4, atol=1e-5
    )


def test_log_sigma_is_clipped_in_float32():
    clipped = normal.clip_log_scale(tf.constant([-100.0, 0.5, 100.0], tf.bfloat16))
    assert clipped.dtype == tf.float32
    np.testing.assert_array_equal(clipped, [-8.0, 0.5, 8.0])
    mean = tf.constant([[1e4, -1e4, 0.0]])
    divergence = normal.diagonal_normal(mean, clipped[None]).kl_divergence(normal.diagonal_normal(tf.zeros_like(mean)))
    assert divergence.dtype == tf.float32
    assert np.isfinite(divergence).all()


def test_a_clipped_sigma_still_has_a_gradient():
    layer = built()
    layer.log_scale_bias.assign(np.full(6, 20.0))
    with tf.GradientTape() as tape:
        mean = layer(WEIGHTS, VALUE)
        parameters = layer.posterior_parameters(mean)
        loss = tf.reduce_sum(layer.distribution(mean, parameters).kl_divergence(layer.prior_distribution(mean, None)))
    np.testing.assert_array_equal(parameters["log_scale"], np.full((2, 3, 6), normal.MAX_LOG_SCALE, "float32"))
    assert (tape.gradient(loss, layer.log_scale_bias.value).numpy() > 0).all()
