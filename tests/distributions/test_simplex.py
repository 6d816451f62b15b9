"""Tests distributions of normalised samples on the simplex: densities that integrate to one, samples, and KLs."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import integrate
from tensorflow_probability.python import distributions as tfd

import keras_vattn
from keras_vattn import DenseKeys, SegmentKeys, distributions
from keras_vattn.distributions.row_distribution import drawn_divergence

GENERATOR = np.random.default_rng(0)
X, Y = GENERATOR.normal(size=(2, 4)).astype("float32")
KEYS = DenseKeys()
MAKE = {
    "weibull": lambda x, keys=KEYS: distributions.NormalizedWeibull(2.5, x, keys),
    "lognormal": lambda x, keys=KEYS: distributions.LogisticNormal(x, 0.6, keys),
    "dirichlet": lambda x, keys=KEYS: distributions.Dirichlet(tf.exp(x), keys),
}
FREE = {
    "weibull": lambda x: distributions.Weibull(2.5, x, KEYS),
    "lognormal": lambda x: distributions.LogNormal(x, 0.6, KEYS),
    "dirichlet": lambda x: distributions.Gamma(x, 0.3, KEYS),
}
every_family = pytest.mark.parametrize("name", MAKE)


@every_family
def test_the_density_integrates_to_one(name):
    """The integral is over the triangle of three weights."""
    q = MAKE[name](X[:3])
    points = (np.arange(400) + 0.5) / 400
    first, second = np.meshgrid(points, points)
    inside = first + second < 1.0
    weights = np.stack([first, second, 1.0 - first - second], axis=-1)[inside].astype("float32")
    density = np.zeros(first.shape)
    density[inside] = np.exp(q.log_prob(weights))
    total = integrate.simpson(integrate.simpson(density, x=points), x=points)
    np.testing.assert_allclose(total, 1.0, rtol=0.02)


@every_family
def test_normalised_draws_have_this_density(name):
    """Means of 100,000 normalised samples equal those of the normalised distribution, within 5 standard errors."""
    q, free = MAKE[name](X), FREE[name](X)
    assert type(free.normalized()) is type(q)
    count = 100_000
    draws = free.sample(count, seed=(0, 1)).numpy()
    draws = draws / draws.sum(axis=-1, keepdims=True)
    for results in (q.sample(count, seed=(0, 2)).numpy(), free.normalized().sample(count, seed=(0, 3)).numpy()):
        np.testing.assert_allclose(results.sum(axis=-1), 1.0, rtol=1e-5)
        error = np.sqrt((draws.var(axis=0) + results.var(axis=0)) / count)
        assert (np.abs(draws.mean(axis=0) - results.mean(axis=0)) < 5 * error).all()
    np.testing.assert_allclose(free.normalized().log_prob(draws[:50]), q.log_prob(draws[:50]), rtol=1e-4, atol=1e-4)


def test_a_logistic_normal_is_a_normal_of_log_ratios():
    """Compares with a float64 normal of TensorFlow Probability for log ratios of all weights to the last weight."""
    mixing = np.concatenate([np.eye(3), -np.ones((3, 1))], axis=1)

    def ratios(loc, scale):
        loc = np.float64(loc)
        return tfd.MultivariateNormalFullCovariance(mixing @ loc, scale**2 * mixing @ mixing.T)

    q, p = MAKE["lognormal"](X), distributions.LogisticNormal(Y, 1.1, KEYS)
    expected = tfd.kl_divergence(ratios(X, 0.6), ratios(Y, 1.1))
    np.testing.assert_allclose(q.kl_divergence(p), expected, rtol=1e-5)
    weights = GENERATOR.dirichlet(np.ones(4), size=20)
    log_ratios = np.log(weights[:, :3] / weights[:, 3:])
    expected = ratios(X, 0.6).log_prob(log_ratios) - np.log(weights).sum(axis=-1)
    np.testing.assert_allclose(q.log_prob(weights.astype("float32")), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("rate", "draws_divergence", "weights_divergence"), [(1.0, 25.05, 22.2), (1000.0, 1.7, 1.4)])
def test_the_kl_of_weights_is_at_most_the_kl_of_draws(rate, draws_divergence, weights_divergence):
    """The KL of weights is below the KL of draws, for eight equal keys, k = 10, and a contextual prior of rate beta."""
    count = 200_000
    uniform = tf.fill((count, 8), -np.log(np.float32(8)))
    q = distributions.Weibull(10.0, uniform, KEYS, sums_to_one=True)
    p = distributions.Gamma(uniform + np.log(np.float32(rate)), np.log(rate), KEYS)
    np.testing.assert_allclose(q.kl_divergence(p)[0], draws_divergence, atol=0.05)
    draws = drawn_divergence(q.normalized(), p.normalized(), KEYS, keras_vattn.random.as_seed(5)).numpy()
    assert abs(draws.mean() - weights_divergence) < 0.05 + 4 * draws.std() / np.sqrt(count)


def test_the_divergence_of_normalised_weibulls_grows_with_the_distance():
    """If q equals p, every estimate is 0. The KL before normalisation would grow exponentially with the distance."""
    results = []
    for distance in (0.0, 2.0, 4.0, 8.0):
        q, p = (MAKE["weibull"](tf.constant([[x, 0.0, 0.0, 0.0]] * 4000)) for x in (distance, 0.0))
        results.append(drawn_divergence(q, p, KEYS, keras_vattn.random.as_seed(5)).numpy())
    assert (np.abs(results[0]) < 1e-5).all()
    means = [x.mean() for x in results]
    assert 0.0 < means[1] < means[2] < means[3] < 4 * 2.5 * 8.0
    np.testing.assert_allclose((means[3] - means[2]) / (means[2] - means[1]), 2.0, rtol=0.1)


@pytest.mark.parametrize("name", ["weibull", "lognormal"])
def test_a_constant_of_a_row_has_no_effect(name):
    one, other = MAKE[name](X), MAKE[name](X + 7.0)
    weights = one.sample(30, seed=(0, 1))
    np.testing.assert_allclose(one.log_prob(weights), other.log_prob(weights), rtol=1e-4, atol=1e-4)


@every_family
def test_segment_keys(name):
    """The list of entries has a row with two keys, a row with four keys and an empty row."""
    rows = SegmentKeys([0, 1, 1, 0, 1, 1], num_rows=3)
    flat = np.concatenate([X[:1], Y[:2], X[1:2], Y[2:]])
    q = MAKE[name](flat, rows)
    weights = q.sample(seed=(0, 1))
    np.testing.assert_allclose(rows.sum(weights), [1.0, 1.0, 0.0], rtol=1e-5)
    for row, x, positions in ((0, X[:2], [0, 3]), (1, Y, [1, 2, 4, 5])):
        expected_row = MAKE[name](x).log_prob(tf.gather(weights, positions))
        np.testing.assert_allclose(q.log_prob(weights)[row], expected_row, rtol=1e-4, atol=1e-4)
    assert float(q.log_prob(weights)[2]) == 0.0


@every_family
def test_masked_keys_have_no_gradient(name):
    mask = np.array([[True, True, False, True], [False] * 4])
    logits = tf.constant(np.where(mask, X, np.nan).astype("float32"))
    with tf.GradientTape() as tape:
        tape.watch(logits)
        keys = DenseKeys(tf.constant(mask))
        q, p = (MAKE[name](keys.zero_masked(x), keys) for x in (logits, Y * np.ones((2, 1), "float32")))
        divergence = drawn_divergence(q, p, keys, keras_vattn.random.as_seed(1))
    gradient = tape.gradient(divergence, logits).numpy()
    assert np.isfinite(divergence).all() and float(divergence[1]) == 0.0
    assert np.isfinite(gradient).all() and (gradient[~mask] == 0.0).all()
