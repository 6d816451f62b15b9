"""Tests the prior and the posterior of MultiHeadAttention: networks, posterior logits and statistics."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from multi_head_cases import (
    HEADS,
    POSTERIOR,
    QUERY,
    STOCHASTIC,
    VALUE,
    VALUE_MASK,
    WIDTH,
    assert_close,
    pair,
    projections,
)
from scipy.special import log_softmax
from twins import twin_divergence

from keras_vattn import LogNormal, MultiHeadAttention, Weibull


def test_a_prior_per_head_has_a_network_per_head():
    shared, separate = (
        MultiHeadAttention(HEADS, WIDTH, alignment="weibull", prior="contextual", per_head_prior=per_head)
        for per_head in (False, True)
    )
    for layer in (shared, separate):
        layer.build(QUERY.shape, VALUE.shape)
        kernel, bias = layer.key_dense.get_weights()
        layer.key_dense.set_weights([np.repeat(kernel[:, :1], HEADS, axis=1), bias])
    assert [w.shape for w in shared.prior.weights] == [(3, 10), (10,), (10, 1)]
    assert [w.shape for w in separate.prior.weights] == [(2, 3, 10), (2, 1, 10), (2, 10, 1)]
    means = [layer.prior_distribution(QUERY, VALUE).mean().numpy() for layer in (shared, separate)]
    np.testing.assert_allclose(means[0].sum(axis=-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(means[0][:, 0], means[0][:, 1], rtol=1e-5)
    assert np.abs(means[1][:, 0] - means[1][:, 1]).max() > 1e-3


def test_with_posterior_logits_the_scores_are_the_prior():
    layer = MultiHeadAttention(HEADS, WIDTH, alignment=LogNormal(0.7))
    output, weights = layer(QUERY, VALUE, posterior_logits=POSTERIOR, return_attention_scores=True)
    np.testing.assert_allclose(weights, tf.nn.softmax(POSTERIOR), rtol=1e-5)
    logits, _ = projections(layer)
    divergence = np.sum((log_softmax(POSTERIOR, axis=-1) - log_softmax(logits, axis=-1)) ** 2) / (2 * 0.7**2)
    assert float(layer.losses[0]) == pytest.approx(divergence / 3, rel=1e-4)
    q, p = (
        f(QUERY, VALUE, posterior_logits=POSTERIOR) for f in (layer.posterior_distribution, layer.prior_distribution)
    )
    assert float(layer.losses[0]) == pytest.approx(twin_divergence(q, p).sum() / 3, rel=1e-4)
    assert np.any(output != layer(QUERY, VALUE))
    assert not layer.losses
    np.testing.assert_allclose(
        layer(QUERY, VALUE, return_attention_scores=True)[1], tf.nn.softmax(logits), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("alignment", list(STOCHASTIC))
def test_posterior_logits_for_all_heads(alignment):
    shared = POSTERIOR[:, :1]
    losses, draws = [], []
    for logits in (np.repeat(shared, HEADS, axis=1), shared, shared[:, 0]):
        keras.utils.set_random_seed(1)
        layer = MultiHeadAttention(HEADS, WIDTH, alignment=alignment, seed=1)
        draws.append(layer(QUERY, VALUE, posterior_logits=logits, return_attention_scores=True, training=True)[1])
        losses.append(float(layer.losses[0]))
    assert losses[1:] == losses[:1] * 2
    assert_close(draws[1:], draws[:1] * 2)
    assert np.any(draws[0][:, 0].numpy() != draws[0][:, 1].numpy())


def test_distributions_and_statistics():
    layer = MultiHeadAttention(HEADS, WIDTH, alignment=Weibull(4.0))
    with pytest.raises(ValueError, match="Call the layer once"):
        layer.posterior_distribution(QUERY, VALUE)
    _, weights = layer(QUERY, VALUE, value_mask=VALUE_MASK, return_attention_scores=True)
    q = layer.posterior_distribution(QUERY, VALUE, value_mask=VALUE_MASK)
    mask = np.broadcast_to(VALUE_MASK[:, None, None], weights.shape)
    np.testing.assert_allclose(q.mean().numpy()[mask], weights.numpy()[mask], rtol=1e-5)
    with pytest.raises(ValueError, match=r"has no prior.*Received: alignment=Weibull"):
        layer.prior_distribution(QUERY, VALUE)
    with pytest.raises(ValueError, match=r"has no prior.*Received: alignment=Softmax"):
        pair()[1].prior_distribution(QUERY, VALUE)
    np.testing.assert_allclose(
        pair()[1].posterior_distribution(QUERY, VALUE).mean(),
        pair()[0](QUERY, VALUE, return_attention_scores=True)[1],
        rtol=1e-5,
    )
