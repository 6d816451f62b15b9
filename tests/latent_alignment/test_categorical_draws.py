"""Tests the samples of CategoricalAttention: frequencies, seeds, and the conditions for sampling."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from latent_cases import INPUTS, OBJECTIVES, SOURCE, STEPS, WIDTH, emit, layers
from scipy.special import softmax

import keras_vattn
from keras_vattn import CategoricalAttention, LatentObjective


def draws_of(latent, count):
    """Return the sampled keys, read from one-hot candidates."""
    candidates = latent["candidates"].numpy()[:, :, :count]
    assert (candidates.sum(-1) == 1).all() and set(np.unique(candidates)) == {0.0, 1.0}
    return candidates.argmax(-1)


def draw_many(objective, batch=20_000, seed=3, training=True):
    """Return the outputs for `batch` equal examples with one-hot values, p, and q."""
    generator = np.random.default_rng(0)
    logits, posterior = generator.normal(size=(2, 1, STEPS, SOURCE)).astype("float32")
    layer = CategoricalAttention(objective=objective, seed=seed)
    value = tf.tile(tf.eye(SOURCE)[None], (batch, 1, 1))
    options = {"posterior_logits": np.tile(posterior, (batch, 1, 1))} if layer.objective.uses_posterior else {}
    latent = layer(
        tf.zeros((batch, STEPS, 2)), value, logits=np.tile(logits, (batch, 1, 1)), training=training, **options
    )
    return latent, softmax(logits[0], -1), softmax(posterior[0], -1)


@pytest.mark.parametrize("objective", ["elbo/sample", "hard/sample", "importance_weighted", "wake_sleep"])
def test_draws(objective):
    """Frequencies are within 4.5 standard errors of q (of p for hard). Both samples of a query are independent."""
    objective = LatentObjective(objective, num_samples=2)
    latent, prior, posterior = draw_many(objective)
    probability = prior if objective.objective == "hard" else posterior
    draws = draws_of(latent, 2)
    count = len(draws)
    for k in range(2):
        frequency = np.stack([(draws[..., k] == s).mean(0) for s in range(SOURCE)], axis=-1)
        error = np.sqrt(probability * (1 - probability) / count)
        assert (np.abs(frequency - probability) < 4.5 * error).all()
    equal_draws = (draws[..., 0] == draws[..., 1]).mean(0)
    expected = (probability**2).sum(-1)
    assert (np.abs(equal_draws - expected) < 4.5 * np.sqrt(expected * (1 - expected) / count)).all()
    equal_steps = (draws[:, 0, 0] == draws[:, 1, 0]).mean()
    expected = (probability[0] * probability[1]).sum()
    assert abs(equal_steps - expected) < 4.5 * np.sqrt(expected * (1 - expected) / count)
    for name, exact in (("log_prior", prior), ("log_posterior", probability)):
        at_draws = np.take_along_axis(np.log(np.broadcast_to(exact, (count, STEPS, SOURCE))), draws, axis=-1)
        np.testing.assert_allclose(latent[name], at_draws, rtol=1e-4, atol=1e-5)


def test_the_gumbel_candidate():
    """With a small tau, the candidate is a sample from q. With any tau, the weights are on the simplex."""
    latent, _, posterior = draw_many(LatentObjective("elbo/gumbel", tau=1e-3))
    weights = latent["candidates"].numpy()[:, :, 0]
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-5)
    assert (weights.max(-1) > 0.99).mean() > 0.98
    error = np.sqrt(posterior * (1 - posterior) / len(weights))
    assert (np.abs(weights.mean(0) - posterior) < 4.5 * error).all()
    smooth = draw_many(LatentObjective("elbo/gumbel", tau=5.0))[0]["candidates"].numpy()
    assert smooth.max() < 0.9


@pytest.mark.slow
def test_a_prediction_model_draws_from_p():
    """Without posterior logits, `posterior_draws` samples from p. Each draw gives a distribution over words. The draws
    differ, and their mean is the marginal."""
    parts = layers(OBJECTIVES["elbo-sample-3"])
    inputs = {"query": keras.Input((None, WIDTH), name="query"), "memory": keras.Input((None, WIDTH), name="memory")}
    latent = parts["attention"](inputs["query"], parts["value"](inputs["memory"]))
    words = ops.exp(parts["words"](emit(parts, inputs, latent), log_weights=latent["log_weights"]))
    prediction = keras.Model(inputs, words)
    arrays = {name: INPUTS[name] for name in inputs}
    draws = keras_vattn.posterior_predictive(prediction, arrays, num_samples=700, seed=1)
    np.testing.assert_allclose(draws.sum(-1), 1.0, rtol=1e-4)
    assert (draws[0] != draws[1]).any()
    exact = keras.Model(inputs, words).predict(arrays, verbose=0)
    error = draws.std(axis=0) / np.sqrt(700)
    assert (np.abs(draws.mean(axis=0) - exact) < 5 * error + 1e-6).all()
    with keras_vattn.posterior_draws(prediction, seed=2):
        latent = parts["attention"](INPUTS["query"], parts["value"](INPUTS["memory"]))
        log_likelihood = parts["words"](emit(parts, INPUTS, latent), INPUTS["targets"])
        assert parts["attention"].losses == []
        with keras_vattn.posterior_draws(parts["bound"]):
            value = parts["bound"](log_likelihood, latent["log_prior"])
    np.testing.assert_allclose(value, log_likelihood.numpy().mean(-1), rtol=1e-4)
