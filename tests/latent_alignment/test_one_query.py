"""Tests one query per example, such as a question about an image, without a step axis after the attention."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vattn import CategoricalAttention, LatentLogLikelihood, LatentObjective

QUESTION = np.random.default_rng(3).normal(size=(4, 1, 6)).astype("float32")
REGIONS = np.random.default_rng(4).normal(size=(4, 5, 6)).astype("float32")
POSTERIOR = np.random.default_rng(5).normal(size=(4, 1, 5)).astype("float32")


def one_query(objective, second_objective=None, sliced=False):
    """Return the layer and its inputs for one question per example about five regions."""
    attention = CategoricalAttention("dot_product", objective, seed=1)
    options = {"posterior_logits": POSTERIOR} if attention.objective.in_training.needs_posterior else {}
    latent = attention(QUESTION, REGIONS, training=True, **options)
    log_likelihood = tf.reduce_sum(latent["candidates"][:, 0], axis=-1)
    log_probabilities = (latent["log_prior"], latent["log_posterior"])
    layer = LatentLogLikelihood(second_objective or objective)
    return layer, log_likelihood, [x[:, 0] for x in log_probabilities] if sliced else log_probabilities


@pytest.mark.parametrize(
    "objective", ["soft", "marginal", "marginal/top_k", "elbo", "elbo/enumerate", "hard", "wake_sleep"]
)
def test_unsliced_attention_outputs_are_accepted(objective):
    """Log-likelihoods (B, K) may be combined with attention outputs that have a step axis; the value is (B,)."""
    options = {"marginal/top_k": {"top_k": 2}, "wake_sleep": {"num_samples": 3}}.get(objective, {})
    objective = LatentObjective(objective, **options)
    layer, log_likelihood, log_probabilities = one_query(objective)
    value = layer(log_likelihood, *log_probabilities, training=True)
    assert value.shape == (4,)
    sliced = layer(log_likelihood, *(x[:, 0] for x in log_probabilities), training=True)
    np.testing.assert_array_equal(value, sliced)
    with_axis = layer(log_likelihood[:, None], *log_probabilities, training=True)
    np.testing.assert_array_equal(value, with_axis[:, 0])


def test_a_functional_model_of_one_query():
    question, regions = keras.Input((6,)), keras.Input((5, 6))
    latent = CategoricalAttention("dot_product", "marginal")(question[:, None], regions)
    log_likelihood = keras.ops.sum(latent["candidates"][:, 0], axis=-1)
    bound = LatentLogLikelihood("marginal")(log_likelihood, latent["log_prior"], latent["log_posterior"])
    assert bound.shape == (None,)
    model = keras.Model([question, regions], bound)
    layer, log_likelihood, log_probabilities = one_query("marginal")
    np.testing.assert_allclose(model([QUESTION[:, 0], REGIONS]), layer(log_likelihood, *log_probabilities), rtol=1e-5)
    with pytest.raises(ValueError, match="must have the same objective"):
        LatentLogLikelihood("soft")(log_likelihood, latent["log_prior"])
