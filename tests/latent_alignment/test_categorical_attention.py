"""Tests the outputs and errors of CategoricalAttention."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from latent_cases import BATCH, INPUTS, MASKED, OBJECTIVES, SOURCE, STEPS, WIDTH, call, valid_keys
from scipy.special import log_softmax, softmax

import keras_vattn
from keras_vattn import CategoricalAttention, LatentObjective

COUNTS = {  # numbers of candidates and log probabilities in training, then at evaluation
    "soft": (1, 1, 1, 1),
    "marginal": (SOURCE,) * 4,
    "top_k": (2, 2, 2, 2),
    "elbo-sample": (2, 1, SOURCE, SOURCE),
    "elbo-sample-3": (3, 3, SOURCE, SOURCE),
    "elbo-moving-average": (1, 1, SOURCE, SOURCE),
    "elbo-enumerate": (SOURCE,) * 4,
    "elbo-gumbel": (1, 1, SOURCE, SOURCE),
    "hard-sample": (2, 1, SOURCE, SOURCE),
    "hard-enumerate": (SOURCE,) * 4,
    "importance-weighted": (3, 3, SOURCE, SOURCE),
    "wake-sleep": (3, 3, SOURCE, SOURCE),
}


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_output_shapes_and_losses(name):
    layer = CategoricalAttention(objective=OBJECTIVES[name])
    for training, counts in ((True, COUNTS[name][:2]), (False, COUNTS[name][2:])):
        latent = call(layer, training=training)
        assert {key: tuple(x.shape) for key, x in latent.items()} == {
            "candidates": (BATCH, STEPS, counts[0], WIDTH),
            "log_prior": (BATCH, STEPS, counts[1]),
            "log_weights": (BATCH, STEPS, counts[0]),
            "log_posterior": (BATCH, STEPS, counts[1]),
        }
        # The weights of the candidates sum to 1, so the candidates mix to one prediction.
        np.testing.assert_allclose(ops.sum(ops.exp(latent["log_weights"]), axis=-1), 1.0, rtol=1e-5)
        at_evaluation = layer.objective.at_inference.objective == "elbo"
        assert len(layer.losses) == (layer.objective.objective == "elbo" if training else at_evaluation)


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_a_prediction_has_no_posterior(objective):
    """Without posterior logits the layer computes the marginal over all keys, or over the most probable keys."""
    layer = CategoricalAttention(objective=objective)
    latent = call(layer, posterior=False)
    assert ("log_posterior" in latent) == (not objective.uses_posterior)
    if objective.uses_posterior:
        np.testing.assert_allclose(ops.logsumexp(latent["log_prior"], axis=-1), np.zeros((BATCH, STEPS)), atol=1e-6)
        assert layer.losses == []
        with pytest.raises(ValueError, match="Received: posterior_logits=None, training=True"):
            call(layer, posterior=False, training=True)


def test_weights_of_draws_in_a_prediction():
    """The weight is 1/K for samples from p, renormalised p / q for samples from q, and 0 for the baseline."""
    latent = call(CategoricalAttention(objective=LatentObjective("hard/sample", num_samples=4)), training=True)
    log_weights = latent["log_weights"].numpy()
    np.testing.assert_allclose(log_weights[..., :4], -np.log(4.0), rtol=1e-6)
    assert (log_weights[..., 4] == -1e30).all()
    latent = call(CategoricalAttention(objective=LatentObjective("wake_sleep", num_samples=4)), training=True)
    ratios = np.exp(latent["log_prior"].numpy() - latent["log_posterior"].numpy())
    np.testing.assert_allclose(np.exp(latent["log_weights"]), ratios / ratios.sum(-1, keepdims=True), rtol=1e-5)


def test_scores_on_request():
    layer = CategoricalAttention(objective="elbo/sample")
    latent = call(layer, MASKED, return_attention_scores=True)
    options = {"value_mask": MASKED["memory_mask"], "posterior_logits": MASKED["posterior_logits"]}
    for name, distribution in (
        ("weights", layer.prior_distribution(MASKED["query"], MASKED["memory"], **options)),
        ("posterior_weights", layer.posterior_distribution(MASKED["query"], MASKED["memory"], **options)),
    ):
        weights, valid = latent[name].numpy(), valid_keys(MASKED)
        assert (weights[~valid] == 0).all()
        np.testing.assert_allclose(weights[valid], distribution.probs_parameter().numpy()[valid], rtol=1e-5)
    assert "posterior_weights" not in call(layer, posterior=False, return_attention_scores=True)
    symbolic = layer(keras.Input((3, WIDTH)), keras.Input((SOURCE, WIDTH)), return_attention_scores=True)
    assert symbolic["weights"].shape == (None, 3, SOURCE)


def test_k_max_at_evaluation():
    """With `top_k`, predictions use K-max, whatever the training objective."""
    for objective in (LatentObjective("elbo", top_k=3), LatentObjective("marginal", top_k=3)):
        latent = call(CategoricalAttention(objective=objective), posterior=False)
        assert latent["candidates"].shape[2] == 3
    latent = call(CategoricalAttention(objective=LatentObjective("soft", inference="marginal/top_k", top_k=2)))
    assert latent["candidates"].shape[2] == 2


def test_probabilities_and_candidates():
    logits = np.einsum("btd,bsd->bts", MASKED["query"], MASKED["memory"])
    valid = valid_keys(MASKED)
    log_prior = log_softmax(np.where(valid, logits, -np.inf).astype("float64")[[0, 1, 3]], axis=-1)
    latent = call(CategoricalAttention(objective="elbo/enumerate"), MASKED)
    log_p = latent["log_prior"].numpy()
    np.testing.assert_allclose(log_p[[0, 1, 3]][valid[[0, 1, 3]]], log_prior[valid[[0, 1, 3]]], rtol=1e-5, atol=1e-5)
    for name in ("log_prior", "log_posterior"):
        assert latent[name].dtype == tf.float32
        assert (np.exp(latent[name].numpy())[~valid] == 0).all()
        assert np.isfinite(latent[name]).all()
    candidates = latent["candidates"].numpy()
    assert (candidates[~valid] == 0).all()
    np.testing.assert_array_equal(candidates[0, 1], MASKED["memory"][0])
    soft = call(CategoricalAttention(objective="soft"), MASKED)["candidates"][:, :, 0]
    attention = keras_vattn.DeterministicAttention()
    expected = attention(MASKED["query"], MASKED["memory"], value_mask=MASKED["memory_mask"])
    np.testing.assert_allclose(soft, expected, rtol=1e-5, atol=1e-6)


def test_the_soft_baseline_uses_p():
    latent = call(CategoricalAttention(objective="elbo/sample"), MASKED, training=True)
    soft = call(CategoricalAttention(objective="soft"), MASKED)
    np.testing.assert_allclose(latent["candidates"][:, :, -1:], soft["candidates"], rtol=1e-5, atol=1e-6)


def test_k_max_keeps_the_most_probable_keys():
    latent = call(CategoricalAttention(objective=LatentObjective("marginal", "top_k", top_k=2)), MASKED)
    logits = np.einsum("btd,bsd->bts", MASKED["query"], MASKED["memory"])
    best = np.argsort(-logits[0, 0])[:2]
    np.testing.assert_allclose(latent["candidates"][0, 0], MASKED["memory"][0][best], rtol=1e-6)
    np.testing.assert_allclose(ops.exp(latent["log_prior"])[0, 0], softmax(logits[0, 0][best]), rtol=1e-5)
    # With one valid key the second candidate is empty.
    np.testing.assert_allclose(ops.exp(latent["log_prior"])[3], np.tile([1.0, 0.0], (STEPS, 1)))
    assert (latent["candidates"].numpy()[3, :, 1] == 0).all()


def test_errors():
    layer = CategoricalAttention(objective="elbo/sample")
    query, memory, posterior = (INPUTS[name] for name in ("query", "memory", "posterior_logits"))
    with pytest.raises(ValueError, match=r"Received: posterior_logits.shape=\(4, 3, 4\)"):
        layer(query, memory, posterior_logits=posterior[..., :4])
    with pytest.raises(ValueError, match=r"Received: logits.shape=\(4, 3\)"):
        layer(query, memory, logits=posterior[..., 0])
    for objective in ("soft", "marginal", "hard"):
        with pytest.raises(ValueError, match=r"an objective with a posterior.*posterior_logits.shape=\(4, 3, 5\)"):
            CategoricalAttention(objective=objective)(query, memory, posterior_logits=posterior)
    with pytest.raises(ValueError, match="Received: score=LocationSensitive, logits=None"):
        CategoricalAttention("location_sensitive", "marginal")(query, memory)
    with pytest.raises(ValueError, match=r"Received: score.compute_dtype=float32, dtype=float16"):
        CategoricalAttention(keras_vattn.DotProduct(), dtype="float16")
