"""Tests StochasticSoftmax against Keras's softmax, and in attention layers that contain a softmax."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from alignment_cases import WITH_CLOSED_DIVERGENCE
from keras import ops

from keras_vattn import Attention, MultiHeadAttention, StochasticSoftmax

GENERATOR = np.random.default_rng(0)
B, H, T, S = 3, 2, 4, 5
LOGITS = GENERATOR.normal(size=(B, H, T, S)).astype("float32")
MASK = np.array(np.broadcast_to((np.arange(S) < np.array([5, 3, 0])[:, None])[:, None, None], (B, 1, T, S)))


def test_inference_is_the_softmax_of_keras():
    mask = np.broadcast_to(MASK[:2], (2, H, T, S))
    expected = keras.layers.Softmax()(LOGITS[:2], mask=mask)
    np.testing.assert_allclose(StochasticSoftmax()(LOGITS[:2], mask), expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(StochasticSoftmax()(LOGITS[:, 0, 0]), tf.nn.softmax(LOGITS[:, 0, 0]), rtol=1e-6)


@pytest.mark.parametrize("alignment", WITH_CLOSED_DIVERGENCE)
def test_masked_entries_have_no_weight_no_gradient_and_no_divergence(alignment):
    layer, logits = StochasticSoftmax(alignment, prior="fixed", seed=1), tf.constant(LOGITS)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        weights = layer(logits, MASK, training=True)
        total = tf.reduce_sum(weights**2) + layer.losses[0]
    masked = ~np.broadcast_to(MASK, LOGITS.shape)
    assert (weights.numpy()[masked] == 0.0).all()
    assert (tape.gradient(total, logits).numpy()[masked] == 0.0).all()
    np.testing.assert_allclose(tf.reduce_sum(weights[:2], axis=-1), 1.0, rtol=1e-5)
    layer(LOGITS, MASK)
    total_divergence = float(layer.losses[0])
    row_divergences = 0.0
    for row, count in enumerate((5, 3)):
        layer(LOGITS[row : row + 1, :, :, :count])
        row_divergences += float(layer.losses[0])
    assert total_divergence == pytest.approx(row_divergences / B, rel=1e-5)


def test_the_divergence_equals_attentions_with_this_softmax():
    query, value = (GENERATOR.normal(size=(B, n, 6)).astype("float32") for n in (T, S))
    options = {"alignment": "weibull", "prior": "fixed"}
    for reduction in ("sum", "query_mean", "mean"):
        softmax = StochasticSoftmax(**options, kl_reduction=reduction)
        heads = MultiHeadAttention(H, 3, **options, kl_reduction=reduction)
        heads(query, value)
        softmax(heads._scored((query, value), {}).logits)
        assert float(softmax.losses[0]) == float(heads.losses[0])
        plain = Attention(**options, kl_reduction=reduction)
        plain(query, value)
        softmax = StochasticSoftmax(**options, kl_reduction=reduction)
        softmax(query @ value.transpose(0, 2, 1))
        assert float(softmax.losses[0]) == pytest.approx(float(plain.losses[0]), rel=1e-6)


def test_a_contextual_prior_reads_the_key_of_the_call():
    """The KL equals the KL of a multi-head attention with the same keys. Heads or groups of heads may share keys."""
    query, value = (GENERATOR.normal(size=(B, n, 6)).astype("float32") for n in (T, S))
    heads = MultiHeadAttention(H, 3, alignment="weibull", prior="contextual")
    heads(query, value)
    logits, key = heads._scored((query, value), {}).logits, ops.transpose(heads.key_dense(value), (0, 2, 1, 3))
    softmax = StochasticSoftmax(prior="contextual")
    softmax(logits, key=key)
    softmax.set_weights(heads.alignment_prior.get_weights())
    softmax(logits, key=key)
    assert float(softmax.losses[0]) == pytest.approx(float(heads.losses[0]), rel=1e-6)
    softmax(logits, key=key[:, :1])
    shared = float(softmax.losses[0])
    softmax(logits, key=np.repeat(key[:, :1], H, axis=1))
    assert float(softmax.losses[0]) == pytest.approx(shared, rel=1e-6)
    softmax(ops.reshape(logits, (B, 1, H, T, S)), key=key[:, :1, None])
    assert float(softmax.losses[0]) == pytest.approx(shared, rel=1e-6)


def test_every_head_and_query_has_its_own_draws():
    layer = StochasticSoftmax(seed=1)
    weights = layer(np.zeros((2, 2, 3, 4, 5), "float32"), training=True).numpy().reshape(-1, 5)
    assert len(np.unique(weights, axis=0)) == len(weights)


def test_without_a_prior_and_posterior_logits_there_is_no_divergence():
    layer = StochasticSoftmax()
    layer(LOGITS, training=True)
    assert not layer.losses and int(layer.training_calls) == 1
    layer(LOGITS, posterior_logits=LOGITS[::-1])
    assert float(layer.losses[0]) > 0
    np.testing.assert_allclose(layer(LOGITS, posterior_logits=LOGITS[::-1]), tf.nn.softmax(LOGITS[::-1]), rtol=1e-5)


@pytest.mark.parametrize(("dtype", "lowest"), [("float32", -1e9), ("float16", -3e4)])
def test_a_mask_that_was_added_to_the_logits(dtype, lowest):
    """A mask added to the logits gives the samples and the KL of the same mask as an argument, in either precision."""
    results = []
    for options in ({"mask": tf.constant(MASK)}, {}):
        layer = StochasticSoftmax(prior="fixed", seed=1, dtype=dtype)
        logits = LOGITS if options else LOGITS + np.where(MASK, 0.0, lowest)
        results.append((layer(tf.cast(logits, dtype), training=True, **options), layer.losses[0]))
    for passed, added in zip(*results, strict=True):
        np.testing.assert_allclose(passed, added, rtol=1e-5, atol=1e-6)


def test_a_mask_of_numbers_and_one_of_the_last_axes():
    masks = [tf.cast(MASK, dtype) for dtype in ("bool", "int32", "float32")]
    reference, *outputs = (StochasticSoftmax(seed=1)(LOGITS, mask=mask, training=True) for mask in masks)
    for output in outputs:
        np.testing.assert_array_equal(reference, output)
    causal = tf.constant(np.tri(T, S, dtype=bool))
    drawn = [StochasticSoftmax(seed=1)(LOGITS, mask=mask, training=True) for mask in (causal, causal[None, None])]
    np.testing.assert_array_equal(*drawn)


def test_errors():
    for call in (LOGITS, keras.Input(LOGITS.shape[1:], batch_size=B)):
        with pytest.raises(ValueError, match=r"reads the keys: pass `key`.*prior=GammaPrior, key=None"):
            StochasticSoftmax(prior="contextual")(call)
    with pytest.raises(ValueError, match=r"`key` must have shape \(B, ..., S, Dk\), or 1 b.*Expected: \(3, 2, 5, 7\)"):
        StochasticSoftmax(prior="contextual")(LOGITS, key=np.ones((B, 2, S + 1, 7), "float32"))
    with pytest.raises(ValueError, match=r"\(B, ..., T, S\) or \(B, S\). Received: inputs.shape=\(5,\)"):
        StochasticSoftmax()(np.zeros(5, "float32"))
    for mask in (MASK[:, 0], np.ones((1, *LOGITS.shape), bool), np.ones((B, S), bool), np.ones((B, 1, T, S - 1), bool)):
        for logits in (LOGITS, keras.Input(LOGITS.shape[1:], batch_size=B)):
            with pytest.raises(ValueError, match=r"`mask` must have shape \(B, ..., T, S\), or 1 in any axis"):
                StochasticSoftmax()(logits, mask=tf.constant(mask))
    with pytest.raises(ValueError, match=r"\(B, ..., T, S\)\. Expected: \(3, 2, 4, 5\)"):
        StochasticSoftmax()(LOGITS, posterior_logits=LOGITS[:, :1])
