"""Tests the lower bound of the KL to a prior against a numerical minimum over q (and over Psi of contextual priors)."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from alignment_cases import KEYS, LOGITS, MASK, ON_THE_SIMPLEX, REPARAMETERISED, divergence_of, parameters, prior_of
from scipy import optimize, special
from tiers import slow_after

import keras_vattn
from keras_vattn import (
    ContextualPrior,
    DenseKeys,
    Dirichlet,
    GammaPrior,
    GumbelSoftmax,
    LogNormal,
    LogNormalPrior,
    SegmentKeys,
    Weibull,
)

EULER = 0.5772156649015329


def log_softmax(x):
    return x - np.logaddexp.reduce(x)


def weibull_to_gamma(k, phi, alpha, beta):
    """Return KL(Weibull || Gamma) of each key in float64, from the published formula."""
    log_lambda = phi - special.gammaln(1 + 1 / k)
    constant = np.log(k) - EULER - 1 - alpha * np.log(beta) + special.gammaln(alpha)
    return EULER * alpha / k - alpha * log_lambda + beta * np.exp(phi) + constant


def least_divergence(alignment, prior, count):
    """Return the minimal KL of one query over the logits of q and of Psi, searched from three starting points."""
    normalized = alignment.parameterization == "normalized"
    contextual = prior.reads_keys

    def divergence(x):
        phi, psi = (log_softmax(x[:count]) if normalized else x[:count]), np.exp(log_softmax(x[count:]))
        if isinstance(alignment, LogNormal):
            q, p = alignment.sigma, prior.sigma
            mean = (np.log(psi) if prior.scale == "rate" else psi) if contextual else prior.mean
            return np.sum(np.log(p / q) + (q**2 + (phi - q**2 / 2 - mean) ** 2) / (2 * p**2) - 0.5)
        alpha = (psi * (prior.beta if prior.scale == "rate" else 1.0)) if contextual else prior.alpha
        return np.sum(weibull_to_gamma(alignment.k, phi, alpha, prior.beta))

    starts = np.random.default_rng(0).normal(size=(3, 2 * count))
    return min(optimize.minimize(divergence, x, tol=1e-9).fun for x in starts)


def floor_of(alignment, prior, log_psi, logits, keys):
    p = prior.distribution(alignment, log_psi, logits, keys)
    p = p.normalized() if alignment.kl_of == "weights" and isinstance(alignment, LogNormal) else p
    return alignment.divergence_floor(prior, p, logits, keys)


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("form", ["normalized", "raw"])
@pytest.mark.parametrize(
    "prior",
    [
        GammaPrior(),
        GammaPrior(beta=1e-3),
        GammaPrior(beta=40.0),
        GammaPrior(beta=3.0, scale="paper"),
        GammaPrior(alpha=0.7, beta=2.0),
    ],
    ids=["default", "weak", "strong", "paper", "fixed"],
)
def test_the_floor_of_a_weibull_is_the_minimum(prior, form, count):
    alignment, logits = Weibull(10.0, form), tf.zeros((1, 1, count))
    log_psi = tf.fill((1, 1, count), -np.log(np.float32(count))) if prior.reads_keys else None
    floor = np.asarray(floor_of(alignment, prior, log_psi, logits, DenseKeys())).item()
    assert floor == pytest.approx(least_divergence(alignment, prior, count), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("count", [1, 5])
def test_the_floor_of_a_lognormal_is_the_minimum(count):
    """The floor equals the minimal KL under a fixed prior. Under a contextual prior, the minimum may exceed the floor
    by (sigma^2 / 2)^2 / 2 per key."""
    logits = tf.zeros((1, 1, count))
    for form, prior, gap in (
        ("normalized", LogNormalPrior(mean=0.3, sigma=1.5), 0.0),
        ("raw", LogNormalPrior(mean=0.3, sigma=1.5), 0.0),
        ("raw", LogNormalPrior(), 0.0),
        ("normalized", LogNormalPrior(), 0.125**2 / 2 * count),
    ):
        alignment = LogNormal(0.5, form)
        log_psi = logits if prior.reads_keys else None
        floor = float(tf.reduce_sum(floor_of(alignment, prior, log_psi, logits, DenseKeys())))
        assert floor - 1e-4 <= least_divergence(alignment, prior, count) <= floor + gap + 1e-4


@pytest.mark.parametrize("count", [1, 5])
def test_the_floor_of_lognormal_weights_is_the_minimum(count):
    """At the minimum, q and p have the same mean of log S and differ only in sigma."""
    alignment, logits = LogNormal(0.5, kl_of="weights"), tf.zeros((1, 1, count))
    for prior in (LogNormalPrior(mean=0.0, sigma=1.5), LogNormalPrior(sigma=0.2)):
        p = {"prior": prior, "log_psi": logits if prior.reads_keys else None}
        floor = floor_of(alignment, prior, p["log_psi"], logits, DenseKeys())
        np.testing.assert_allclose(floor, divergence_of(alignment, logits, p, DenseKeys())[0, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["weibull", "weibull-raw", "lognormal", "lognormal-raw", "lognormal-weights"])
@pytest.mark.parametrize("prior", ["fixed", "rate", "paper"])
def test_the_floor_of_masked_rows_and_edges_depends_on_their_keys(name, prior):
    alignment = (REPARAMETERISED | ON_THE_SIMPLEX)[name]
    prior = prior_of(alignment, prior)
    p = parameters(alignment, prior)
    log_psi = p["log_psi"]
    floor = floor_of(alignment, prior, log_psi, tf.constant(LOGITS), KEYS)
    floor = tf.broadcast_to(floor, LOGITS.shape[:2]).numpy()
    assert (divergence_of(alignment, tf.constant(LOGITS), p, KEYS).numpy() >= floor - 1e-4).all()
    for row, count in enumerate(MASK[:, 0].sum(-1)):
        row_log_psi = None if log_psi is None else log_psi[row : row + 1, :, :count]
        row_floor = floor_of(alignment, prior, row_log_psi, tf.zeros((1, 1, count)), DenseKeys())
        np.testing.assert_allclose(floor[row], np.ravel(row_floor)[0], rtol=1e-5)
    rows, columns = np.nonzero(MASK[:, 0])
    edges = SegmentKeys(rows, num_rows=4)
    edge_log_psi = None if log_psi is None else tf.constant(log_psi.numpy()[rows, 0, columns])
    edge_floor = floor_of(alignment, prior, edge_log_psi, tf.zeros(len(rows)), edges)
    np.testing.assert_allclose(edge_floor, [*floor[:, 0], 0.0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("beta", [1e-15, 1e15])
@pytest.mark.parametrize("scale", ["rate", "paper"])
def test_the_floor_is_finite_for_every_beta_and_without_keys(beta, scale):
    alignment, prior = Weibull(), GammaPrior(beta=beta, scale=scale)
    keys = DenseKeys(tf.constant([[[True, True, False]], [[False, False, False]]]))
    logits = tf.zeros((2, 1, 3))
    floor = floor_of(alignment, prior, keys.log_softmax(logits), logits, keys)
    assert np.isfinite(floor).all()
    assert floor[1] == 0.0


@pytest.mark.parametrize("alignment", [Dirichlet(), GumbelSoftmax(), LogNormal(0.5)], ids=repr)
def test_a_family_that_can_match_its_prior_has_no_floor(alignment):
    log_psi = tf.fill((2, 3, 4), -np.log(np.float32(4)))
    for prior in (ContextualPrior(), prior_of(alignment, "rate", sigma=0.5)):
        assert floor_of(alignment, prior, log_psi, tf.zeros((2, 3, 4)), DenseKeys()) is None


X = np.random.default_rng(0).normal(size=(8, 4, 5)).astype("float32")
MAKE = {
    "heads": lambda **options: keras_vattn.MultiHeadAttention(2, 3, name="attention", **options),
    "attention": lambda **options: keras_vattn.Attention(name="attention", **options),
}


def history_of(layer, calls=1, mask=None, **compiled):
    """Return the training history of a model whose only loss is the KL of `layer`."""
    inputs = keras.Input((4, 5))
    query_mask = None if mask is None else keras.ops.convert_to_tensor(mask)
    call = lambda: layer(inputs, inputs, query_mask=query_mask)  # noqa: E731
    model = keras.Model(inputs, keras.layers.Dense(5)(sum(call() for _ in range(calls))))
    model.compile(keras.optimizers.SGD(0.0), lambda y_true, y_pred: 0.0 * keras.ops.mean(y_pred), **compiled)
    return model.fit(X, X, batch_size=8, verbose=0).history


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
@pytest.mark.parametrize("options", slow_after([{"run_eagerly": True}, {}]), ids=repr)
def test_the_log_shows_the_divergence_and_its_excess_over_the_floor(make, options):
    """The expected floor counts three unmasked queries, each with four keys."""
    mask = np.ones((8, 4), bool)
    mask[:, 0] = False
    for calls in (1, 2):
        layer = make(alignment="weibull", prior="contextual")
        log = history_of(layer, calls, mask, **options)
        rows = calls * 3 * getattr(layer, "num_heads", 1)
        floor = rows * least_divergence(Weibull(), GammaPrior(), 4)
        assert log["attention_kl"] == pytest.approx(log["loss"], rel=1e-6)
        assert log["attention_kl_above_floor"][0] == pytest.approx(log["attention_kl"][0] - floor, abs=1e-3)
        assert log["attention_kl_above_floor"][0] > 1e-2


def test_the_kl_of_a_gaussian_context_counts_above_the_floor():
    layer = keras_vattn.Attention(alignment="weibull", prior="contextual", context="gaussian", name="attention")
    log = history_of(layer)
    floor = 4 * least_divergence(Weibull(), GammaPrior(), 4)
    assert log["attention_kl_above_floor"][0] == pytest.approx(log["attention_kl"][0] - floor, abs=1e-3)
