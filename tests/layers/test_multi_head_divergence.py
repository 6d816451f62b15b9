"""Tests the KL of MultiHeadAttention: its sum over heads, its weight, and masks."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from multi_head_cases import (
    HEAD_MASK,
    HEADS,
    QUERY,
    QUERY_MASK,
    VALUE,
    VALUE_MASK,
    WIDTH,
    log_psi,
    projections,
)
from scipy.special import log_softmax
from tensorflow_probability.python import distributions as tfd

from keras_vattn import Alignment, GammaPrior, MultiHeadAttention, Weibull, distributions


@pytest.mark.parametrize("reduction", ["sum", "query_mean", "mean"])
@pytest.mark.parametrize("per_head_prior", [False, True])
def test_divergence_is_the_sum_over_heads_queries_and_keys(per_head_prior, reduction):
    k, beta = 3.0, 2.0
    layer = MultiHeadAttention(
        HEADS,
        WIDTH,
        alignment=Weibull(k),
        prior=GammaPrior(beta=beta, num_heads=HEADS if per_head_prior else None),
        kl_reduction=reduction,
        kl_weight=0.5,
        bias_initializer="random_normal",
    )
    masks = {"query_mask": QUERY_MASK, "value_mask": VALUE_MASK, "attention_mask": HEAD_MASK}
    layer(QUERY, VALUE, **masks)
    logits, keys = projections(layer)
    mask = np.broadcast_to(VALUE_MASK[:, None, None] & HEAD_MASK, logits.shape)
    phi = np.where(mask, log_softmax(np.where(mask, logits, -np.inf), axis=-1), 0.0)
    psi = np.where(mask, log_psi(layer, keys, mask), 0.0)
    total = 0.0
    for index in np.argwhere(mask & QUERY_MASK[:, None, :, None]):
        index = tuple(index)
        scale = np.exp(phi[index]) / np.exp(tf.math.lgamma(np.float64(1.0 + 1.0 / k)))
        q = tfd.Weibull(np.float64(k), scale)
        total += float(tfd.kl_divergence(q, tfd.Gamma(beta * np.exp(psi[index]), np.float64(beta))))
    valid = mask & QUERY_MASK[:, None, :, None]
    counts = {"sum": len(QUERY), "query_mean": valid.any(axis=(1, 3)).sum(), "mean": valid.sum()}
    assert len(layer.losses) == 1
    assert float(layer.losses[0]) == pytest.approx(0.5 * total / counts[reduction], rel=1e-5)
    layer(QUERY, VALUE, **masks, training=False)
    assert float(layer.kl_tracker.result()) == pytest.approx(total / len(QUERY), rel=1e-5)


class Rows(distributions.RowDistribution):
    """A distribution whose KL is 1 everywhere, even in a row without keys."""

    def __init__(self, logits, keys):
        super().__init__(logits, keys, {})


@tfd.RegisterKL(Rows, Rows)
def one_nat(q, p, name=None):
    return ops.ones_like(q.like[..., 0])


class OneNat(Alignment):
    is_stochastic = True

    def posterior(self, logits, keys):
        return Rows(logits, keys)


def test_a_head_without_a_valid_key_adds_no_divergence():
    mask = np.ones((3, HEADS, 4, 5), bool)
    mask[0, 0] = mask[1, :, :2] = False
    layer = MultiHeadAttention(HEADS, WIDTH, alignment=OneNat(), prior="fixed")
    layer(QUERY, VALUE, attention_mask=mask)
    assert float(layer.losses[0]) == pytest.approx((HEADS * 4 * 3 - 4 - HEADS * 2) / 3, rel=1e-6)
