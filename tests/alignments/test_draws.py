"""Tests sampled attention weights: distributions, limits, masks and extreme noise."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from alignment_cases import KEYS, LOGITS, MASK, REPARAMETERISED, B, S, T, draw
from scipy import stats

from keras_vattn import (
    Attention,
    ContextualPrior,
    DenseKeys,
    Dirichlet,
    DirichletPrior,
    GammaPrior,
    GumbelSoftmax,
    Hard,
    LogNormal,
    LogNormalPrior,
    Weibull,
)
from keras_vattn import random as noise_of

PROBABILITIES = np.where(MASK, np.exp(LOGITS), 0.0)
PROBABILITIES = PROBABILITIES / PROBABILITIES.sum(-1, keepdims=True)


@pytest.mark.parametrize("alignment", [Weibull(1e6), LogNormal(1e-6)], ids=["weibull", "lognormal"])
def test_without_variance_it_is_softmax_attention(alignment):
    np.testing.assert_allclose(draw(alignment, LOGITS, KEYS, 5), np.repeat(PROBABILITIES[None], 5, 0), atol=1e-4)


@pytest.mark.parametrize("name", ["weibull", "lognormal"])
def test_the_unnormalised_mean_is_exp_phi(name):
    """Means of S are within 4 standard errors of exp(phi), where phi is the log softmax (Fan et al. 2020, 3.2)."""
    alignment, keys = REPARAMETERISED[name], DenseKeys()
    noise = alignment.noise((100_000, 1, 3), noise_of.as_seed(1))
    noise = noise.numpy() if name == "weibull" else alignment.sigma * noise.numpy()
    phi = np.log([0.5, 0.3, 0.2])
    shift = np.log(stats.weibull_min(alignment.k).mean()) if name == "weibull" else 0.5 * alignment.sigma**2
    draws = np.exp(phi + noise - shift)
    error = draws.std(0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(0) - np.exp(phi)) < 4 * error).all()
    sampled = alignment.posterior(tf.constant(phi[None, None], tf.float32), keys)
    np.testing.assert_allclose(sampled.mean()[0, 0], np.exp(phi), rtol=1e-5)


def test_dirichlet_draws_have_the_marginals_of_a_dirichlet():
    """Kolmogorov-Smirnov tests compare each marginal with Beta(a_i, a_0 - a_i), for concentrations from 0.2 to 20."""
    concentration = np.array([0.2, 0.5, 1.0, 3.0, 20.0])
    weights = draw(Dirichlet(-20.0, 20.0), np.log(concentration)[None, None].astype("float32"), DenseKeys(), 20_000)
    for index, a in enumerate(concentration):
        marginal = stats.beta(a, concentration.sum() - a)
        assert stats.kstest(weights[:, 0, 0, index], marginal.cdf).pvalue > 1e-3


def test_the_mean_dirichlet_gradient_is_the_gradient_of_the_mean():
    """The mean gradient of 50,000 samples is d E[w_i] / d log a_j = m_i (1[i = j] - m_j), within 4 standard errors."""
    logits = tf.constant([[[-1.0, 0.5, 2.0]]])
    alignment, keys, num_samples = Dirichlet(), DenseKeys(), 50_000
    noise = alignment.noise((num_samples, 1, 3), noise_of.as_seed(3))
    repeated = tf.repeat(logits, num_samples, axis=0)
    mean = tf.nn.softmax(alignment.perturb(logits, None, keys))[0, 0].numpy()
    for index in range(3):
        with tf.GradientTape() as tape:
            tape.watch(repeated)
            weights = keys.softmax(alignment.perturb(repeated, noise, keys))[..., index]
        gradient = tape.gradient(weights, repeated).numpy()[:, 0]
        expected = mean[index] * ((np.arange(3) == index) - mean)
        error = gradient.std(0) / np.sqrt(num_samples)
        assert (np.abs(gradient.mean(0) - expected) < 4 * error + 1e-4).all()


def test_gumbel_draws_the_categorical():
    """For every tau, the position of the largest weight follows softmax(logits). For tau = 1e-3 the weights are nearly
    one-hot."""
    sharp, soft = (draw(GumbelSoftmax(tau), LOGITS, KEYS, 4000, seed=5) for tau in (1e-3, 2.0))
    np.testing.assert_array_equal(sharp.argmax(-1), soft.argmax(-1))
    assert (sharp.max(-1) > 0.99).mean() > 0.98
    frequencies = np.stack([(soft.argmax(-1) == s).mean(0) for s in range(S)], axis=-1)
    error = np.sqrt(PROBABILITIES * (1 - PROBABILITIES) / 4000)
    assert (np.abs(frequencies - PROBABILITIES) < 4 * error + 1e-6).all()


def test_categorical_draws_are_one_hot_without_a_gradient():
    """With the same noise, hard samples select the largest weight of the Gumbel softmax. Their mean is the softmax."""
    drawn, relaxed = (draw(alignment, LOGITS, KEYS, 4000, seed=5) for alignment in (Hard(), GumbelSoftmax()))
    assert set(np.unique(drawn)) == {0.0, 1.0} and (drawn.sum(axis=-1) == 1.0).all()
    np.testing.assert_array_equal(drawn.argmax(-1), relaxed.argmax(-1))
    error = np.sqrt(PROBABILITIES * (1 - PROBABILITIES) / 4000)
    assert (np.abs(drawn.mean(0) - PROBABILITIES) < 4 * error + 1e-6).all()
    alignment, logits = Hard(), tf.constant(LOGITS)
    np.testing.assert_allclose(alignment.normalize(logits, None, KEYS), PROBABILITIES, rtol=1e-5, atol=1e-7)
    noise = alignment.noise((B, T, S), noise_of.as_seed(2))
    with tf.GradientTape() as tape:
        tape.watch(logits)
        weights = alignment.normalize(alignment.perturb(logits, noise, KEYS), noise, KEYS)
    assert tape.gradient(weights, logits) is None
    np.testing.assert_allclose(alignment.posterior(logits, KEYS).mean(), PROBABILITIES, rtol=1e-5, atol=1e-7)


def test_straight_through_is_one_hot_with_the_relaxed_gradient():
    logits = tf.constant(LOGITS)
    hard, soft = GumbelSoftmax(0.7, straight_through=True), GumbelSoftmax(0.7)
    noise = hard.noise((B, T, S), noise_of.as_seed(2))
    gradients = []
    for alignment in (hard, soft):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            weights = alignment.normalize(alignment.perturb(logits, noise, KEYS), noise, KEYS)
            loss = tf.reduce_sum(weights * np.arange(S, dtype="float32"))
        gradients.append(tape.gradient(loss, logits))
        if alignment is hard:
            np.testing.assert_allclose(np.sort(weights.numpy())[..., -1], 1.0, rtol=1e-6)
            np.testing.assert_allclose(np.sort(weights.numpy())[..., :-1], 0.0, atol=1e-6)
    np.testing.assert_array_equal(gradients[0], gradients[1])


def test_gumbel_temperature_is_annealed_by_the_training_calls():
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([2], [10.0, 1e-3])
    layer = Attention(alignment=GumbelSoftmax(schedule), seed=1)
    query, value = np.ones((64, 1, 4), "float32"), np.random.default_rng(0).normal(size=(64, 5, 4)).astype("float32")
    largest = []
    for _ in range(5):
        _, weights = layer(query, value, return_attention_scores=True, training=True)
        largest.append(float(np.median(np.max(weights, axis=-1))))
    assert max(largest[:3]) < 0.5
    assert min(largest[3:]) > 0.99


@pytest.mark.parametrize(("calls", "tau"), [(0, 2.0), (1, 0.5), (2, 0.1)])
def test_gumbel_distributions_have_the_temperature_of_the_next_draw(calls, tau):
    """The log odds of two equal keys are logistic / tau. The median of |log odds| is within 4.5 standard errors."""
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([0, 1], [2.0, 0.5, 0.1])
    layer = Attention(alignment=GumbelSoftmax(schedule), prior="fixed", seed=1)
    query, value = np.ones((4000, 1, 3), "float32"), np.ones((4000, 2, 3), "float32")
    layer(query, value)
    layer.training_calls.assign(calls)
    q, p = layer.posterior_distribution(query, value), layer.prior_distribution(query, value)
    _, weights = layer(query, value, return_attention_scores=True, training=True)
    # The median of |log odds| is log(3) / tau, where the density is 3 tau / 8.
    median, standard_error = np.log(3.0) / tau, 0.5 / np.sqrt(4000) / (3.0 * tau / 8.0)
    for draws in (weights, q.sample(seed=(0, 2)), p.sample(seed=(0, 3))):
        logs = np.log(np.maximum(draws[:, 0], 1e-37))  # a weight may be 0 in float32
        assert np.median(np.abs(logs[:, 0] - logs[:, 1])) == pytest.approx(median, abs=4.5 * standard_error)


@pytest.mark.parametrize("name", ["weibull", "dirichlet", "gumbel"])
@pytest.mark.parametrize("u", [2.0**-24, 1.0 - 2.0**-24])
def test_the_ends_of_the_uniform_are_finite(name, u):
    """A uniform of exactly 0 would give NaN in rows with one valid key, so the library never returns 0."""
    alignment, logits = REPARAMETERISED[name], tf.constant(LOGITS)
    noise = alignment.noise((B, T, S), noise_of.as_seed(1))
    if name == "weibull":
        noise = tf.fill((B, T, S), u)
    elif name == "dirichlet":
        noise = {**noise, "uniform": tf.fill((B, T, S), u)}
    else:
        noise = {"gumbel": tf.fill((B, T, S), -np.log(-np.log(np.float32(u))))}
    with tf.GradientTape() as tape:
        tape.watch(logits)
        weights = alignment.normalize(alignment.perturb(logits, noise, KEYS), noise, KEYS)
        loss = tf.reduce_sum(tf.square(weights))
    assert np.isfinite(weights).all()
    assert np.isfinite(tape.gradient(loss, logits)).all()


def test_permuting_the_keys_permutes_the_weights():
    order = np.array([3, 1, 0, 5, 4, 2])
    for alignment in REPARAMETERISED.values():
        noise = alignment.noise((B, T, S), noise_of.as_seed(1))
        permuted = keras.tree.map_structure(lambda x: tf.gather(x, order, axis=2), noise)
        keys = DenseKeys(tf.constant(MASK[..., order]))
        first = alignment.normalize(alignment.perturb(tf.constant(LOGITS), noise, KEYS), noise, KEYS).numpy()
        second = alignment.normalize(alignment.perturb(tf.constant(LOGITS[..., order]), permuted, keys), permuted, keys)
        np.testing.assert_allclose(second, first[..., order], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "received"),
    [
        (lambda: Weibull(0.0), "k=0.0"),
        (lambda: LogNormal(-1.0), "sigma=-1.0"),
        (lambda: GumbelSoftmax(0), "tau=0"),
        (lambda: GumbelSoftmax(straight_through="no"), "straight_through='no'"),
        (lambda: Dirichlet(3.0, 3.0), "min_log_concentration=3.0"),
        (lambda: Weibull(kl_of="logits"), "kl_of='logits'"),
        (lambda: LogNormal(kl_of="logits"), "kl_of='logits'"),
        (lambda: GammaPrior(alpha=0.0), "alpha=0.0"),
        (lambda: GammaPrior(beta=-1.0), "beta=-1.0"),
        (lambda: DirichletPrior(-1.0), "alpha=-1.0"),
        (lambda: LogNormalPrior(sigma=float("inf")), "sigma=inf"),
        (lambda: ContextualPrior(hidden_units=0), "hidden_units=0"),
        (lambda: GammaPrior(scale="code"), "scale='code'"),
    ],
)
def test_errors(make, received):
    with pytest.raises(ValueError, match="Received: " + received):
        make()
