"""Tests the KLs of alignments against float64 TensorFlow Probability, quadrature and Monte Carlo, and at extremes."""

import copy

import keras
import numpy as np
import pytest
import tensorflow as tf
from alignment_cases import (
    KEY,
    KEYS,
    LOGITS,
    MASK,
    ON_THE_SIMPLEX,
    OTHER,
    PRIORS,
    REPARAMETERISED,
    B,
    S,
    T,
    divergence_of,
    parameters,
    prior_of,
    reference_divergence,
)
from scipy import integrate, special, stats

from keras_vattn import DenseKeys, FixedPrior, GammaPrior, GumbelSoftmax, LogNormal, LogNormalPrior, Weibull
from keras_vattn import random as noise_of

ALL = REPARAMETERISED | ON_THE_SIMPLEX
# The KL of `weibull-weights` has no closed form: it is estimated from a sample.
CLOSED = [name for name in ALL if name != "weibull-weights"]


@pytest.mark.parametrize("prior", list(PRIORS))
@pytest.mark.parametrize("name", [name for name in CLOSED if name != "gumbel"])
def test_against_float64(name, prior):
    alignment = ALL[name]
    prior = prior_of(alignment, prior)
    p = parameters(alignment, prior)
    divergence = divergence_of(alignment, tf.constant(LOGITS), p, KEYS).numpy()
    assert divergence.dtype == np.float32
    np.testing.assert_allclose(divergence, reference_divergence(alignment, LOGITS, p), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("prior", list(PRIORS))
@pytest.mark.parametrize("name", CLOSED)
def test_masked_keys_do_not_count(name, prior):
    alignment = ALL[name]
    prior = prior_of(alignment, prior)
    p = parameters(alignment, prior)
    full = divergence_of(alignment, tf.constant(LOGITS), p, KEYS)
    short = {k: x[:, :, :4] if getattr(x, "shape", ())[-1:] == (S,) else x for k, x in p.items()}
    alone = divergence_of(
        alignment, tf.constant(LOGITS[1:2, :, :4]), {k: _row(x, 1) for k, x in short.items()}, DenseKeys()
    )
    np.testing.assert_allclose(full[1:2], alone, rtol=1e-4, atol=1e-5)


def _row(x, index):
    return x[index : index + 1] if len(getattr(x, "shape", ())) == 3 else x


def test_gumbel_is_the_divergence_of_the_categoricals():
    log_q, log_p = (np.where(MASK, x, -np.inf) for x in (LOGITS, OTHER))
    log_q, log_p = (x - np.logaddexp.reduce(x, axis=-1, keepdims=True) for x in (log_q, log_p))
    entries = np.exp(log_q) * (np.where(MASK, log_q, 0.0) - np.where(MASK, log_p, 0.0))
    expected = np.where(MASK, entries, 0.0).sum(-1)
    alignment = GumbelSoftmax()
    divergence = divergence_of(alignment, LOGITS, {"logits": tf.constant(OTHER)}, KEYS)
    np.testing.assert_allclose(divergence, expected, atol=1e-6)
    uniform = divergence_of(alignment, LOGITS, {"prior": FixedPrior(), "log_psi": None}, KEYS)
    entropy = -np.where(MASK, np.exp(log_q) * np.where(MASK, log_q, 0.0), 0.0).sum(-1)
    np.testing.assert_allclose(uniform, np.log(MASK.sum(-1)) - entropy, atol=1e-6)


@pytest.mark.parametrize("name", list(ALL))
def test_zero_where_q_is_p(name):
    alignment = ALL[name]
    divergence = divergence_of(alignment, LOGITS, {"logits": tf.constant(LOGITS)}, KEYS)
    np.testing.assert_allclose(divergence, 0.0, atol=1e-5)


def test_against_quadrature():
    """The KL of one key with raw logit 0.4 equals the integral of q log(q / p) over the weight of the key."""
    phi, key = np.float32(0.4), DenseKeys()
    logits = tf.constant([[[phi]]])
    k, alpha, beta = 3.0, 0.7, 2.0
    q, p = stats.weibull_min(k, scale=np.exp(phi) / special.gamma(1 + 1 / k)), stats.gamma(alpha, scale=1 / beta)
    expected = integrate.quad(lambda x: q.pdf(x) * (q.logpdf(x) - p.logpdf(x)), 1e-9, 20)[0]
    prior = {"prior": GammaPrior(alpha, beta), "log_psi": None}
    value = divergence_of(Weibull(k, "raw"), logits, prior, key)
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    q, p = stats.lognorm(0.7, scale=np.exp(phi - 0.245)), stats.lognorm(1.5, scale=np.exp(0.3))
    expected = integrate.quad(lambda x: q.pdf(x) * (q.logpdf(x) - p.logpdf(x)), 1e-9, 60)[0]
    prior = {"prior": LogNormalPrior(0.3, sigma=1.5), "log_psi": None}
    value = divergence_of(LogNormal(0.7, "raw"), logits, prior, key)
    np.testing.assert_allclose(value, expected, rtol=1e-4)


@pytest.mark.parametrize("prior", list(PRIORS))
@pytest.mark.parametrize("kind", [Weibull, LogNormal])
def test_the_sampled_estimator_has_the_analytic_mean_and_more_variance(kind, prior):
    sampled, analytic, prior = kind(2.0, kl_estimator="sampled"), kind(2.0), prior_of(kind(2.0), prior)
    p = parameters(sampled, prior)
    exact = divergence_of(analytic, tf.constant(LOGITS), p, KEYS).numpy()
    num_samples = 4000
    tiled = lambda x: tf.repeat(x, num_samples, axis=0) if len(getattr(x, "shape", ())) == 3 else x  # noqa: E731
    many = DenseKeys(tiled(KEYS.valid))
    noise = sampled.noise((num_samples * B, T, S), noise_of.as_seed(1))
    arguments = tiled(tf.constant(LOGITS)), {name: tiled(x) for name, x in p.items()}, many
    estimates = divergence_of(sampled, *arguments, noise).numpy().reshape(B, num_samples, T)
    error = estimates.std(1) / np.sqrt(num_samples)
    assert ((estimates.std(1) > 1e-2) | (exact == 0)).all()
    assert (np.abs(estimates.mean(1) - exact) <= 4 * error + 1e-4 * np.abs(exact)).all()
    np.testing.assert_allclose(
        divergence_of(analytic, *arguments, noise).numpy().reshape(B, num_samples, T)[:, 0], exact, rtol=1e-5
    )
    np.testing.assert_array_equal(divergence_of(sampled, tf.constant(LOGITS), p, KEYS), exact)


@pytest.mark.parametrize("scale", ["rate", "paper"])
@pytest.mark.parametrize("beta", [1e-15, 1e-6, 1.0, 1e6, 1e15])
@pytest.mark.parametrize("size", [1.0, 30.0])
def test_weibull_is_accurate_for_every_beta(beta, scale, size):
    alignment, prior = Weibull(10.0), GammaPrior(beta=beta, scale=scale)
    prior.build(KEY.shape)
    prior.set_weights([size * w for w in prior.get_weights()])
    logits = (size * LOGITS).astype("float32")
    p = parameters(alignment, prior)
    divergence = divergence_of(alignment, tf.constant(logits), p, KEYS).numpy()
    log_psi = np.where(MASK, prior.log_psi(tf.constant(KEY), KEYS).numpy(), -np.inf).astype("float64")
    log_psi = np.where(MASK, log_psi, 0.0)
    phi = np.where(MASK, logits.astype("float64"), -np.inf)
    phi = np.where(MASK, phi - np.logaddexp.reduce(phi, axis=-1, keepdims=True), 0.0)
    expected = np.where(
        MASK, _weibull_gamma(10.0, phi, log_psi + (np.log(beta) if scale == "rate" else 0.0), np.log(beta)), 0.0
    )
    np.testing.assert_allclose(divergence, expected.sum(-1), rtol=2e-4, atol=1e-3)


def _weibull_gamma(k, phi, log_alpha, log_beta):
    """Return KL(Weibull || Gamma) in extended precision; log Gamma has asymptotic forms for tiny and huge alpha."""
    phi, log_alpha, log_beta = (np.asarray(x, np.longdouble) for x in (phi, log_alpha, log_beta))
    alpha = np.exp(log_alpha)
    small = np.where(alpha < 1e-8, -log_alpha, special.gammaln(np.maximum(alpha, 1e-300).astype("float64")))
    log_gamma = np.where(alpha > 1e6, alpha * log_alpha - alpha + 0.5 * (np.log(2 * np.pi) - log_alpha), small)
    log_lambda = phi - np.longdouble(special.gammaln(1 + 1 / k))
    euler = np.longdouble(0.5772156649015328606)
    return (
        euler * alpha / k
        - alpha * log_lambda
        + np.log(k)
        + np.exp(log_beta + phi)
        - euler
        - 1
        - alpha * log_beta
        + log_gamma
    ).astype("float64")


@pytest.mark.parametrize(
    ("name", "estimator"),
    [*((name, "analytic") for name in ALL), ("weibull", "sampled"), ("lognormal-raw", "sampled")],
)
@pytest.mark.parametrize("prior", list(PRIORS))
def test_extremes_are_finite_in_value_and_gradient(name, estimator, prior):
    """Covers logits +-1e4 in q and the opposite in p, beta and the prior's sigma from 1e-15 to 1e15, and sigma 100."""
    for strength in (1e-15, 1.0, 1e15):
        alignment = ALL[name]
        prior_layer = prior_of(alignment, prior, beta=strength, sigma=strength)
        if isinstance(alignment, LogNormal):
            alignment = LogNormal(100.0, alignment.parameterization, kl_of=alignment.kl_of)
        if estimator == "sampled":
            alignment = copy.copy(alignment)
            alignment.kl_estimator = estimator
        logits = tf.constant(np.sign(LOGITS) * 1e4)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            p = parameters(alignment, prior_layer, key=1e3 * KEY, other=-np.sign(LOGITS) * 1e4)
            noise = alignment.noise(LOGITS.shape, noise_of.as_seed(1)) if estimator == "sampled" else None
            divergence = divergence_of(alignment, logits, p, KEYS, noise)
            total = tf.reduce_sum(divergence)
        assert np.isfinite(divergence).all()
        assert np.isfinite(tape.gradient(total, logits)).all()


def test_beta_scales_the_gradient_of_the_divergence():
    """The gradient of the KL is dKL / d log lambda = beta (E[S] - Psi)."""
    psi = np.array([[[0.4, 0.3, 0.2, 0.1]]], "float32")
    for beta in (1e-10, 1.0, 100.0):
        alignment = Weibull(10.0, "raw")
        phi = tf.constant(np.log([[[0.6, 0.2, 0.1, 0.1]]]).astype("float32"))
        with tf.GradientTape() as tape:
            tape.watch(phi)
            p = {"prior": GammaPrior(beta=beta), "log_psi": tf.constant(np.log(psi))}
            total = tf.reduce_sum(divergence_of(alignment, phi, p, DenseKeys()))
        expected = beta * (np.array([[[0.6, 0.2, 0.1, 0.1]]]) - psi)
        np.testing.assert_allclose(tape.gradient(total, phi), expected, rtol=1e-4, atol=1e-6 * beta)


@pytest.mark.parametrize(
    ("beta", "expected"),
    [
        (1e-6, [0.20, 0.20, 0.20, 0.20, 0.20]),
        (1.0, [0.27, 0.21, 0.19, 0.17, 0.16]),
        (10.0, [0.51, 0.20, 0.12, 0.09, 0.07]),
        (100.0, [0.59, 0.20, 0.10, 0.06, 0.04]),
    ],
)
def test_the_contextual_prior_goes_uniform_for_small_beta(beta, expected):
    """Finds the Psi with minimal KL for a posterior with mean (.60, .20, .10, .06, .04) and k = 10."""
    alignment, prior = Weibull(10.0), GammaPrior(beta=beta)
    phi = tf.constant(np.log([[[0.60, 0.20, 0.10, 0.06, 0.04]]]).astype("float32"))
    logits = tf.Variable(tf.zeros((1, 1, 5)))
    optimizer = keras.optimizers.Adam(0.05)
    optimizer.build([logits])

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            p = {"prior": prior, "log_psi": DenseKeys().log_softmax(logits)}
            loss = tf.reduce_sum(divergence_of(alignment, phi, p, DenseKeys()))
        optimizer.apply([tape.gradient(loss, logits)], [logits])

    for _ in range(300):
        step()
    np.testing.assert_allclose(tf.nn.softmax(logits)[0, 0], expected, atol=0.008)
