"""Tests a score that depends on the weights of previous steps, which the decoder passes to the score."""

import numpy as np
import pytest
import tensorflow as tf

import keras_vattn
from keras_vattn import AttentionDecoder, LocationSensitive

generator = np.random.default_rng(0)
B, D = 4, 6


def decoder_inputs():
    return (
        tf.constant(generator.normal(size=(B, 4, 3)), tf.float32),
        tf.constant(generator.normal(size=(B, 7, D)), tf.float32),
        tf.constant(np.arange(7) < np.array([7, 5, 3, 6])[:, None]),
    )


@pytest.mark.parametrize("location", ["previous", "cumulative"])
@pytest.mark.parametrize("query", ["current", "previous"])
def test_location_sensitive_score_against_numpy(query, location):
    """Recomputes eqs. 8 and 9 of Chorowski et al. 2015 step by step, with the queries that the decoder returns."""
    inputs, memory, mask = decoder_inputs()
    score = LocationSensitive(units=4, filters=3, kernel_size=5, location=location)
    attention = keras_vattn.DeterministicAttention(score)
    decoder = AttentionDecoder(5, attention, query=query)
    options = {"memory_mask": mask, "return_attention_scores": True, "return_logits": True}
    decoder(inputs, memory, **options)
    score.bias.assign(generator.normal(size=4))
    result = decoder(inputs, memory, **options)
    w = {name: getattr(score, name).numpy() for name in ("query_kernel", "key_kernel", "bias", "scale")}
    filters, u = score.location_filters.numpy(), score.location_kernel.numpy()
    visible = np.where(mask[..., None], memory, 0.0)
    alpha = np.zeros((B, 7))
    for t in range(4):
        windows = np.stack([np.pad(alpha, [(0, 0), (2, 2)])[:, s : s + 5] for s in range(7)], axis=1)
        hidden = result["query"].numpy()[:, t, None] @ w["query_kernel"] + visible @ w["key_kernel"] + w["bias"]
        logits = (np.tanh(hidden + windows @ filters @ u) @ w["scale"])[..., 0]
        np.testing.assert_allclose(result["logits"][:, t], logits, rtol=1e-4, atol=1e-5)
        weights = np.where(mask, np.exp(logits), 0.0)
        weights /= weights.sum(-1, keepdims=True)
        np.testing.assert_allclose(result["weights"][:, t], weights, rtol=1e-4, atol=1e-5)
        alpha = weights if location == "previous" else alpha + weights


def test_step_carries_the_state_of_the_score():
    inputs, memory, mask = decoder_inputs()
    score = LocationSensitive(filters=3, kernel_size=4)
    for feeding in ("sampled", "off"):
        decoder = AttentionDecoder(5, keras_vattn.DeterministicAttention(score), query="previous", feeding=feeding)
        expected = decoder(inputs, memory, memory_mask=mask, return_attention_scores=True)
        prepared = decoder.prepare_memory(memory, mask)
        state = decoder.start(B, prepared)
        for t in range(4):
            outputs, state = decoder.step(inputs[:, t], state, prepared)
            for name in ("hidden", "context", "weights"):
                np.testing.assert_allclose(outputs[name], expected[name][:, t], atol=1e-5)
        score = LocationSensitive(filters=3, kernel_size=4)
