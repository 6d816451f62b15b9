"""Tests that the expected context depends on no sample, dropout or posterior."""

import numpy as np
import pytest
import tensorflow as tf

import keras_vattn
from keras_vattn import Attention, AttentionDecoder

GENERATOR = np.random.default_rng(3)
INPUTS = tf.constant(GENERATOR.normal(size=(3, 4, 4)), tf.float32)
MEMORY = tf.constant(GENERATOR.normal(size=(3, 5, 6)), tf.float32)
POSTERIOR = tf.constant(GENERATOR.normal(size=(3, 4, 5)), tf.float32)
MASK = np.arange(5) < np.array([5, 3, 1])[:, None]


def calls(decoder, **options):
    """Return the results of the decoder in training, eagerly and in a graph."""
    call = lambda: decoder(INPUTS, MEMORY, memory_mask=MASK, training=True, return_logits=True, **options)  # noqa: E731
    return call(), tf.function(call)()


# Tests each alignment and each context with both queries.
@pytest.mark.parametrize(
    ("alignment", "context", "query"),
    [
        ("softmax", "weighted_sum", "current"),
        ("softmax", "gaussian", "previous"),
        ("weibull", "weighted_sum", "previous"),
        ("weibull", "gaussian", "current"),
    ],
)
def test_the_expected_context_ignores_draws_and_dropout(alignment, context, query):
    """The states depend on the fed context. In training they equal the states at inference with the same weights."""
    attention = Attention("additive", alignment, context, dropout=0.5, seed=1)
    decoder = AttentionDecoder(5, attention, query=query, feeding="expected")
    expected = decoder(INPUTS, MEMORY, memory_mask=MASK, return_logits=True, training=False)
    for decoded in calls(decoder):
        for name in ("hidden", "query", "logits"):
            np.testing.assert_allclose(decoded[name], expected[name], rtol=1e-5, atol=1e-6)
        assert np.abs(decoded["context"] - expected["context"]).max() > 0.01


@pytest.mark.parametrize("alignment", ["lognormal", "dirichlet"])
def test_the_expected_context_ignores_the_posterior_and_dropout(alignment):
    attention = Attention("additive", alignment, dropout=0.5, seed=1)
    decoder = AttentionDecoder(5, attention, feeding="expected")
    expected = decoder(INPUTS, MEMORY, memory_mask=MASK, training=False)
    for decoded in calls(decoder, posterior_logits=POSTERIOR):
        np.testing.assert_allclose(decoded["hidden"], expected["hidden"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("alignment", ["softmax", "weibull"])
def test_the_sampled_context_depends_on_dropout(alignment):
    attention = Attention("additive", alignment, dropout=0.5, seed=1)
    decoder = AttentionDecoder(5, attention, feeding="sampled")
    expected = decoder(INPUTS, MEMORY, training=False)["hidden"]
    assert np.abs(decoder(INPUTS, MEMORY, training=True)["hidden"] - expected).max() > 0.001


@pytest.mark.parametrize("location", ["previous", "cumulative"])
def test_the_score_state_uses_the_expected_weights(location):
    score = keras_vattn.LocationSensitive(filters=3, kernel_size=3, location=location)
    decoder = AttentionDecoder(5, Attention(score, "weibull", seed=1), query="previous", feeding="expected")
    expected = decoder(INPUTS, MEMORY, return_logits=True, training=False)["logits"]
    for decoded in (decoder(INPUTS, MEMORY, return_logits=True, training=True) for _ in range(2)):
        np.testing.assert_allclose(decoded["logits"], expected, rtol=1e-5, atol=1e-6)
