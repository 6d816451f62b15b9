"""Tests gradients of 20,000 samples through the layers. The emission is a matrix product, tanh and a softmax."""

import numpy as np
import pytest
import tensorflow as tf
from estimator_cases import (
    POSTERIOR_LOGITS,
    PRIOR_LOGITS,
    SOURCE,
    STEPS,
    VOCABULARY,
    WORDS,
    all_draws,
    leave_one_out_mean,
    probability_of_draws,
)
from keras import ops
from wrong_estimators import WRONG

import keras_vattn
from keras_vattn import LatentObjective
from keras_vattn.latent_alignment import estimators


def emission(candidates, emission_inputs):
    hidden = ops.tanh(candidates @ emission_inputs["hidden_kernel"])
    return emission_inputs["words"](hidden, emission_inputs["targets"])


def through_layers(objective, batch, seed=0, training=True):
    """Return the gradients of the bound by the logits of p and q and by the values, for `batch` equal examples."""
    generator = np.random.default_rng(3)
    logits = tf.constant(np.tile(PRIOR_LOGITS, (batch, 1, 1)), tf.float32)
    posterior_logits = tf.constant(np.tile(POSTERIOR_LOGITS, (batch, 1, 1)), tf.float32)
    kernel = tf.constant(generator.normal(size=(SOURCE, 6), scale=2.0), tf.float32)
    words = keras_vattn.TokenLogLikelihood(VOCABULARY, chunk_size=2**20)
    words.build((None, None, None, 6))
    words.kernel.assign(generator.normal(size=(6, VOCABULARY), scale=2.0))
    attention = keras_vattn.CategoricalAttention(objective=objective, kl_weight=0.0, seed=seed)
    value = tf.tile(tf.eye(SOURCE)[None], (batch, 1, 1))
    emission_inputs = {"hidden_kernel": kernel, "words": words, "targets": tf.constant(np.tile(WORDS, (batch, 1)))}
    with tf.GradientTape() as tape:
        tape.watch([logits, posterior_logits, value])
        latent = attention(
            tf.zeros((batch, STEPS, 2)),
            value,
            logits=logits,
            posterior_logits=posterior_logits if attention.objective.uses_posterior else None,
            training=training,
        )
        log_likelihood = emission(latent["candidates"], emission_inputs)
        bound = keras_vattn.LatentLogLikelihood(objective)(
            log_likelihood, latent["log_prior"], latent.get("log_posterior"), training=training
        )
        total = tf.reduce_sum(bound)
    return [x.numpy() for x in tape.gradient(total, [logits, posterior_logits, value], unconnected_gradients="zero")]


def within_four_standard_errors(samples, truth):
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    return bool((np.abs(samples.mean(axis=0) - truth) <= 4 * error + 1e-6).all())


NUM_DRAWS = 20_000
SAMPLED = {
    "elbo-soft": (LatentObjective("elbo/sample"), "elbo/enumerate"),
    "elbo-none": (LatentObjective("elbo/sample", baseline=None), "elbo/enumerate"),
    "elbo-moving-average": (LatentObjective("elbo/sample", baseline="moving_average"), "elbo/enumerate"),
    "elbo-two-draws": (LatentObjective("elbo/sample", num_samples=2, baseline=leave_one_out_mean), "elbo/enumerate"),
    "hard-soft": (LatentObjective("hard/sample"), "hard/enumerate"),
}


@pytest.fixture(scope="module")
def enumerated():
    """Return the gradients of the bounds that enumerate all keys instead of sampling."""
    return {pair: [x[0] for x in through_layers(pair, 1)] for pair in ("elbo/enumerate", "hard/enumerate")}


@pytest.mark.parametrize("name", list(SAMPLED))
def test_twenty_thousand_draws_through_the_layers(name, enumerated):
    objective, pair = SAMPLED[name]
    samples = through_layers(objective, NUM_DRAWS)
    for estimates, exact in zip(samples, enumerated[pair], strict=True):
        assert within_four_standard_errors(estimates, exact)
    drawn_from = samples[0 if pair.startswith("hard") else 1]
    assert drawn_from.std(axis=0).min() > 0


@pytest.mark.parametrize("wrong", WRONG, ids=lambda x: x.__name__)
def test_wrong_estimators_through_the_layers_fail_the_same_check(wrong, enumerated, monkeypatch):
    monkeypatch.setattr(estimators, "score_function", wrong)
    samples = through_layers(LatentObjective("elbo/sample", baseline=None), NUM_DRAWS)
    passed = [within_four_standard_errors(*pair) for pair in zip(samples, enumerated["elbo/enumerate"], strict=True)]
    assert not all(passed)


def test_importance_weighted_draws_through_the_layers_match_the_formula():
    """Compares the mean over samples with an enumeration of all samples."""
    for name in ("importance_weighted", "wake_sleep"):
        samples = through_layers(LatentObjective(name, num_samples=2), NUM_DRAWS)
        for estimates, exact in zip(samples, _enumerated_by_formula(getattr(estimators, name)), strict=True):
            assert within_four_standard_errors(estimates, exact)


def plain_log_words(contexts):
    """Return log p of every word given contexts (..., S), with the emission of `through_layers`, in float64."""
    generator = np.random.default_rng(3)
    kernel, output = generator.normal(size=(SOURCE, 6), scale=2.0), generator.normal(size=(6, VOCABULARY), scale=2.0)
    return tf.nn.log_softmax(tf.tanh(contexts @ kernel) @ output)


def _enumerated_by_formula(estimator):
    watched = [tf.constant(PRIOR_LOGITS), tf.constant(POSTERIOR_LOGITS), tf.eye(SOURCE, dtype=tf.float64)]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        log_likelihood = tf.transpose(tf.gather(plain_log_words(watched[2]), WORDS[0], axis=1))[None]  # (1, T, S)
        prior, posterior = (tf.nn.log_softmax(x) for x in watched[:2])
        probability = tf.stop_gradient(probability_of_draws(posterior, 2))
        value = estimator(*(all_draws(x, 2) for x in (log_likelihood, prior, posterior)))
        total = tf.reduce_sum(probability * value)
    by_prior, by_posterior, by_value = tape.gradient(total, watched)
    return [by_prior[0].numpy(), by_posterior[0].numpy(), by_value.numpy()]


def test_the_gumbel_gradient_matches_its_definition(monkeypatch):
    """The gradient through sum_s softmax((log q + g) / tau)_s x_s, for fixed g, equals that of plain TensorFlow."""
    noise = np.random.default_rng(5).uniform(0.05, 0.95, size=(1, STEPS, SOURCE)).astype("float32")
    monkeypatch.setattr(keras_vattn.random, "uniform", lambda shape, seed: tf.constant(noise))
    actual = through_layers(LatentObjective("elbo/gumbel", tau=0.7), 1)[1]
    logits = tf.constant(POSTERIOR_LOGITS)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        gumbel = -tf.math.log(-tf.math.log(tf.cast(noise, tf.float64)))
        weights = tf.nn.softmax((tf.nn.log_softmax(logits) + gumbel) / 0.7)
        total = tf.reduce_sum(tf.gather(plain_log_words(weights), WORDS, batch_dims=2))
    np.testing.assert_allclose(actual, tape.gradient(total, logits), rtol=1e-3, atol=1e-5)
