"""Tests the KL that CategoricalAttention adds to the loss."""

import numpy as np
import pytest
import tensorflow as tf
from latent_cases import BATCH, INPUTS, MASKED, SOURCE, STEPS, call, tensors, valid_keys
from twins import twin_divergence

from keras_vattn import CategoricalAttention, LatentObjective, Local


def kl(layer, inputs, **masks):
    options = {"value_mask": inputs["memory_mask"], "posterior_logits": inputs["posterior_logits"], **masks}
    posterior = layer.posterior_distribution(inputs["query"], inputs["memory"], **options)
    return twin_divergence(posterior, layer.prior_distribution(inputs["query"], inputs["memory"], **options))


@pytest.mark.parametrize("kl_reduction", ["sum", "query_mean", "mean"])
def test_divergence(kl_reduction):
    """Compares the KL over valid queries and keys with TensorFlow Probability, in training and at inference."""
    layer = CategoricalAttention(objective="elbo/sample", kl_weight=0.5, kl_reduction=kl_reduction)
    query_mask = np.arange(STEPS) < np.array([3, 2, 3, 0])[:, None]
    call(layer, MASKED)
    valid = query_mask & MASKED["memory_mask"].any(-1, keepdims=True)
    total = kl(layer, MASKED)[valid].sum()
    entries = (valid[..., None] & valid_keys(MASKED)).sum()
    expected = 0.5 * total / {"sum": BATCH, "query_mean": valid.sum(), "mean": entries}[kl_reduction]
    for training in (True, False):
        call(layer, MASKED, query_mask=query_mask, training=training)
        assert layer.losses[0].dtype == tf.float32
        np.testing.assert_allclose(layer.losses[0], expected, rtol=1e-5)


def test_the_divergence_is_never_negative():
    layer = CategoricalAttention(objective="elbo/enumerate")
    generator = np.random.default_rng(0)
    for scale in (0.0, 1e-4, 1e-3, 1.0):
        logits = generator.normal(size=(500, 1, SOURCE)).astype("float32")
        moved = (logits + scale * generator.normal(size=logits.shape)).astype("float32")
        value = np.zeros((500, SOURCE, 1), "float32")
        layer(np.zeros((500, 1, 1), "float32"), value, logits=logits, posterior_logits=moved)
        assert float(layer.losses[0]) >= 0.0
        assert scale or float(layer.losses[0]) == 0.0


def test_detach_prior():
    """The KL has gradients for q and p. With `detach_prior`, it has a gradient only for q."""
    for detach in (False, True):
        layer = CategoricalAttention(objective=LatentObjective("elbo/enumerate", detach_prior=detach))
        inputs = tensors(INPUTS)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            call(layer, inputs)
            divergence = layer.losses[0]
        by_query, by_logits = tape.gradient(divergence, [inputs["query"], inputs["posterior_logits"]])
        assert (by_query is None) == detach
        assert np.abs(by_logits).max() > 0


def test_hidden_keys_do_not_count_in_the_mean():
    """The window has one position on either side of a query. The mean KL includes only pairs inside the window."""
    layer = CategoricalAttention(Local("additive", window=1), "elbo/sample", kl_reduction="mean")
    call(layer, INPUTS)
    near = np.abs(np.arange(STEPS)[:, None] - np.arange(SOURCE)) <= 1
    np.testing.assert_allclose(layer.losses[0], kl(layer, INPUTS).sum() / (BATCH * near.sum()), rtol=1e-5)
