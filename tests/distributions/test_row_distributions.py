"""Tests densities, samples and KLs of row distributions against TensorFlow Probability in float64."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats
from tensorflow_probability.python import distributions as tfd
from twins import twin, twin_divergence

from keras_vattn import DenseKeys, SegmentKeys, distributions
from keras_vattn.distributions.row_distribution import drawn_divergence

GENERATOR = np.random.default_rng(0)
B, T, S = 3, 2, 5
X, Y = GENERATOR.normal(size=(2, B, T, S)).astype("float32")
MASK = np.broadcast_to((np.arange(S) < np.array([5, 3, 1])[:, None])[:, None], (B, T, S))
KEYS = DenseKeys(tf.constant(MASK))
MAKE = {
    "weibull": lambda x, keys=KEYS: distributions.Weibull(2.5, x, keys),
    "gamma": lambda x, keys=KEYS: distributions.Gamma(x, 0.7, keys),
    "lognormal": lambda x, keys=KEYS: distributions.LogNormal(x, 0.6, keys),
    "dirichlet": lambda x, keys=KEYS: distributions.Dirichlet(tf.exp(x), keys),
    "relaxed": lambda x, keys=KEYS: distributions.RelaxedCategorical(0.5, keys.log_softmax(x), keys),
}
ENTRIES = ["weibull", "gamma", "lognormal"]
every_family = pytest.mark.parametrize("name", MAKE)


def rows(x):
    return np.where(MASK, x, 0.0).sum(axis=-1)


@pytest.mark.parametrize("name", ENTRIES)
def test_the_density_covers_the_valid_entries(name):
    q, value = MAKE[name](X), np.exp(Y)
    value[~MASK] = np.nan
    np.testing.assert_allclose(q.log_prob(value), rows(twin(q).log_prob(np.exp(Y))), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("dirichlet", lambda x: tfd.Dirichlet(np.exp(x))),
        ("relaxed", lambda x: tfd.RelaxedOneHotCategorical(np.float64(0.5), logits=x)),
    ],
)
def test_the_density_on_the_simplex_covers_the_valid_keys(name, plain):
    value = GENERATOR.dirichlet(np.ones(S), size=(B, T))
    value[1, :, :3] /= value[1, :, :3].sum(axis=-1, keepdims=True)
    results = MAKE[name](X).log_prob(value.astype("float32"))
    x = X.astype("float64")
    np.testing.assert_allclose(results[0], plain(x[0]).log_prob(value[0]), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(results[1], plain(x[1, :, :3]).log_prob(value[1, :, :3]), rtol=1e-4, atol=1e-4)


def test_a_draw_below_the_float32_range_has_a_density():
    p = distributions.Gamma(tf.fill((2, 3), -7.0), 0.0, DenseKeys())
    draws = p.sample(200, seed=(0, 1))
    assert (draws.numpy() == 0.0).any() and np.isfinite(p.log_prob(draws)).all()


@every_family
def test_shapes_and_masked_entries(name):
    q = MAKE[name](X)
    assert (q.batch_shape, q.event_shape) == ((B, T), (S,))
    assert q.batch_shape_tensor().numpy().tolist() == [B, T]
    draws = q.sample(4, seed=(0, 1))
    assert draws.shape == (4, B, T, S) and draws.dtype == tf.float32
    assert (draws.numpy()[:, ~MASK] == 0.0).all()
    if name == "relaxed":
        np.testing.assert_allclose(draws.numpy().sum(axis=-1), 1.0, rtol=1e-5)
    else:
        assert (q.mean().numpy()[~MASK] == 0.0).all()
    assert np.any(draws[0] != draws[1])
    np.testing.assert_array_equal(q.sample(4, seed=tf.constant([1, 2])), q.sample(4, seed=tf.constant([1, 2])))


@every_family
def test_broadcast_parameters(name):
    """A prior may have one row of parameters for all queries. Its samples have the shape of the mask."""
    q, p = MAKE[name](X), MAKE[name](Y[:, :1])
    expected = rows(twin_divergence(q, p)) if name in ENTRIES and name != "gamma" else None
    assert (p.batch_shape, p.sample(seed=(0, 1)).shape) == ((B, T), (B, T, S))
    if expected is not None:
        np.testing.assert_allclose(q.kl_divergence(p), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ENTRIES)
def test_draws(name):
    """From 20,000 samples, means of log S are within 5 standard errors, and standard deviations within 5%."""
    q, count = MAKE[name](X[:1], DenseKeys()), 20_000
    draws = np.log(q.sample(count, seed=(0, 3)).numpy())
    expected = np.log(twin(q).sample(count, seed=(0, 4)).numpy())
    error = np.sqrt((draws.var(0) + expected.var(0)) / count)
    assert (np.abs(draws.mean(0) - expected.mean(0)) < 5 * error).all()
    np.testing.assert_allclose(draws.std(0), expected.std(0), rtol=0.05)
    np.testing.assert_allclose(q.mean(), twin(q).mean(), rtol=1e-5)
    np.testing.assert_allclose(q.stddev(), twin(q).stddev(), rtol=1e-4)


def test_a_draw_has_a_gradient():
    for name in (*ENTRIES, "dirichlet"):
        x = tf.constant(X)
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(MAKE[name](x).sample(seed=(0, 1)) ** 2)
        gradient = tape.gradient(total, x).numpy()
        assert np.isfinite(gradient).all() and (gradient[~MASK] == 0.0).all()
        # A Dirichlet sample with one key is constant, so check only the first example, which has several keys.
        assert (gradient[0] != 0.0).all()


@pytest.mark.parametrize("other", [0.4, 2.5, 7.0])
def test_weibulls_of_different_k(other):
    q, p = MAKE["weibull"](X), distributions.Weibull(other, tf.constant(Y), KEYS)
    np.testing.assert_allclose(q.kl_divergence(p), rows(twin_divergence(q, p)), rtol=1e-5)
    assert (q.kl_divergence(q).numpy() == 0.0).all()


@pytest.mark.parametrize("log_rate", [-14.0, 0.0, 6.0, 12.0])
def test_a_weibull_and_a_gamma(log_rate):
    """Tests two forms of the KL: one for means that sum to one and rates below 100, and one for all other cases."""
    log_mean = KEYS.log_softmax(X)
    p = distributions.Gamma(tf.constant(Y), log_rate, KEYS)
    for sums_to_one in (False, True):
        q = distributions.Weibull(2.5, log_mean, KEYS, sums_to_one)
        np.testing.assert_allclose(q.kl_divergence(p), rows(twin_divergence(q, p)), rtol=1e-4)


def test_segment_keys_have_one_value_per_row():
    indices, columns = np.nonzero(MASK[:, 0])
    keys = SegmentKeys(indices, num_rows=B)
    for name in MAKE:
        dense, segments = (MAKE[name](*x) for x in ((X[:, 0], DenseKeys(MASK[:, 0])), (X[indices, 0, columns], keys)))
        other = (MAKE[name](*x) for x in ((Y[:, 0], DenseKeys(MASK[:, 0])), (Y[indices, 0, columns], keys)))
        if name != "gamma":
            expected, results = (q.kl_divergence(p) for q, p in zip((dense, segments), other, strict=True))
            np.testing.assert_allclose(results, expected, rtol=1e-4, atol=1e-5)
        value = np.exp(Y[:, 0])
        np.testing.assert_allclose(
            segments.log_prob(value[indices, columns]), dense.log_prob(value), rtol=1e-4, atol=1e-5
        )
        assert segments.sample(7, seed=(0, 1)).shape == (7, len(indices))


def test_estimates_of_any_pair():
    """Covers distributions of rows and (from TFP) of entries. Means of 4,000 estimates are within 5 standard errors."""
    x, y = (np.tile(z, (4_000, *(1 for _ in z.shape))) for z in (X, Y))
    plain, log_normals = tfd.LogNormal(x, 0.8), (distributions.LogNormal(X, 0.8, KEYS), MAKE["lognormal"](Y))
    for q, p, *twins in (
        (MAKE["weibull"](x), MAKE["gamma"](y), MAKE["weibull"](X), MAKE["gamma"](Y)),
        (plain, MAKE["lognormal"](y), *log_normals),
        (plain, tfd.LogNormal(y, 0.6), *log_normals),
    ):
        results = drawn_divergence(q, p, KEYS, tf.constant([1, 2])).numpy()
        error = results.std(axis=0) / np.sqrt(4_000)
        assert (np.abs(results.mean(axis=0) - rows(twin_divergence(*twins))) < 5 * error).all()


@pytest.mark.parametrize("name", ["weibull", "lognormal"])
def test_a_draw_from_existing_noise(name):
    q, p, uniform = MAKE[name](X), MAKE[name](Y), GENERATOR.uniform(0.1, 0.9, size=X.shape)
    noise = np.log(stats.weibull_min(2.5).ppf(uniform)) if name == "weibull" else stats.norm.ppf(uniform)
    noise = noise.astype("float32")
    value = np.exp(q.log_draw(noise))
    expected = rows(twin(q).log_prob(value).numpy() - twin(p).log_prob(value).numpy())
    np.testing.assert_allclose(drawn_divergence(q, p, KEYS, None, noise), expected, rtol=1e-4, atol=1e-4)
    if name == "weibull":
        quantile = stats.weibull_min(2.5, scale=np.exp(q.log_scale)).ppf(uniform)
    else:
        quantile = stats.lognorm(q.scale, scale=np.exp(q.loc)).ppf(uniform)
    np.testing.assert_allclose(value, quantile, rtol=1e-4)
