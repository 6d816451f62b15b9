"""Tests MultiHeadAttention with a stochastic alignment. test_multi_head_of_keras.py compares it with Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from multi_head_cases import (
    GENERATOR,
    HEADS,
    POSTERIOR,
    QUERY,
    VALUE,
    VALUE_MASK,
    WIDTH,
    WINDOW,
    assert_close,
    copy_keras_weights,
    pair,
)

from keras_vattn import Alignment, GammaPrior, MultiHeadAttention


@pytest.mark.parametrize("posterior", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_two_attention_axes_are_one_long_axis(training, posterior):
    query = GENERATOR.normal(size=(2, 3, 4, 6)).astype("float32")
    value = GENERATOR.normal(size=(2, 2, 5, 6)).astype("float32")
    arguments = {
        "attention_mask": GENERATOR.random((2, 3, 4, 2, 5)) < 0.8,
        "query_mask": GENERATOR.random((2, 3, 4)) < 0.8,
        "value_mask": GENERATOR.random((2, 2, 5)) < 0.8,
    }
    if posterior:
        arguments["posterior_logits"] = GENERATOR.normal(size=(2, 3, 4, 2, 5)).astype("float32")
    flat_arguments = {
        name: x.reshape(2, -1) if name in ("query_mask", "value_mask") else x.reshape(2, 12, -1)
        for name, x in arguments.items()
    }
    options = {"alignment": "weibull", "prior": None if posterior else "contextual", "seed": 2}
    high, flat = MultiHeadAttention(HEADS, WIDTH, **options), MultiHeadAttention(HEADS, WIDTH, **options)
    high.build(query.shape, value.shape)
    flat.build((2, 12, 6), (2, 10, 6))
    copy_keras_weights(flat, high)
    if not posterior:
        flat.prior.set_weights(high.prior.get_weights())
    output, weights = high(query, value, **arguments, return_attention_scores=True, training=training)
    query, value = query.reshape(2, 12, 6), value.reshape(2, 10, 6)
    expected = flat(query, value, **flat_arguments, return_attention_scores=True, training=training)
    assert weights.shape == (2, HEADS, 3, 4, 2, 5)
    assert_close([tf.reshape(output, (2, 12, 6)), tf.reshape(weights, (2, HEADS, 12, 10))], expected)
    assert_close(high.losses, flat.losses)


@pytest.mark.parametrize("alignment", ["softmax", "weibull"])
@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({}, {"use_causal_mask": True}, "`use_causal_mask` needs one attention axis"),
        *([(WINDOW, {}, "`sliding_window` needs inputs")] if WINDOW else ()),
        ({"attention_axes": (1, 1)}, {}, "`attention_axes` must be distinct axes"),
        ({"attention_axes": (1, 4)}, {}, "`attention_axes` must be distinct axes"),
        ({"attention_axes": -5}, {}, "`attention_axes` must be distinct axes"),
    ],
)
def test_invalid_attention_axes_and_position_masks(options, arguments, message, alignment):
    layer, x = MultiHeadAttention(HEADS, WIDTH, alignment=alignment, **options), np.ones((2, 3, 4, 6), "float32")
    with pytest.raises(ValueError, match=message):
        layer(x, x, **arguments)


def test_other_axes_are_batch_axes():
    x = GENERATOR.normal(size=(2, 3, 4, 6)).astype("float32")
    query_mask = GENERATOR.random((2, 3, 4)) < 0.8
    options = {"alignment": "weibull", "prior": "contextual"}
    high, flat = (
        MultiHeadAttention(HEADS, WIDTH, attention_axes=2, **options),
        MultiHeadAttention(HEADS, WIDTH, **options),
    )
    high.build(x.shape, x.shape)
    flat.build((6, 4, 6), (6, 4, 6))
    copy_keras_weights(flat, high)
    flat.prior.set_weights(high.prior.get_weights())
    masks = {"query_mask": query_mask, "value_mask": GENERATOR.random((2, 3, 4)) < 0.8}
    output = high(x, x, **masks, use_causal_mask=True)
    flat_masks = {name: mask.reshape(6, 4) for name, mask in masks.items()}
    expected = flat(x.reshape(6, 4, 6), x.reshape(6, 4, 6), **flat_masks, use_causal_mask=True)
    assert_close(tf.reshape(output, (6, 4, 6)), expected)
    assert float(high.losses[0]) == pytest.approx(3 * float(flat.losses[0]), rel=1e-5)
    with pytest.raises(ValueError, match=r"`query_mask`.*Received: query_mask\.shape=\(2, 3\)"):
        high(x, x, query_mask=query_mask[..., 0])


class Sharper(Alignment):
    def perturb(self, logits, noise, keys):
        return 2.0 * logits


def test_a_custom_deterministic_alignment():
    layers = pair(alignment=Sharper())
    layers[0].query_dense.set_weights([2.0 * w for w in layers[0].query_dense.get_weights()])
    for training in (False, True):
        assert_close(*(layer(QUERY, VALUE, value_mask=VALUE_MASK, training=training) for layer in layers))
    assert not layers[1].losses


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alignment": "weibull", "per_head_prior": True}, "per head.*Received: prior=None"),
        ({"alignment": "weibull", "prior": GammaPrior(), "per_head_prior": True}, "per head.*Received"),
        ({"alignment": "weibull", "flash_attention": True}, "Flash attention.*Received: flash_attention=True"),
    ],
)
def test_options_that_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(HEADS, WIDTH, **options)


@pytest.mark.parametrize(
    ("options", "logits", "message"),
    [
        ({}, POSTERIOR, "need an alignment that supports a KL.*Received: alignment=Softmax"),
        ({"alignment": "weibull", "prior": "fixed"}, POSTERIOR, "must have prior=None.*prior=GammaPrior"),
        (
            {"alignment": "weibull"},
            POSTERIOR[:, :, :3],
            r"\(3, 2, 4, 5\).*Received: posterior_logits.shape=\(3, 2, 3, 5\)",
        ),
        ({"alignment": "weibull"}, POSTERIOR[0, 0], r"Received: posterior_logits.shape=\(4, 5\)"),
        ({"alignment": "weibull"}, np.repeat(POSTERIOR, 2, axis=1), r"Received: posterior_logits.shape=\(3, 4, 4, 5\)"),
    ],
)
def test_posterior_logits_that_are_rejected(options, logits, message):
    layer = MultiHeadAttention(HEADS, WIDTH, **options)
    with pytest.raises(ValueError, match=message):
        layer(QUERY, VALUE, posterior_logits=logits)
    with pytest.raises(ValueError, match=message):
        layer(*(keras.KerasTensor(x.shape) for x in (QUERY, VALUE)), posterior_logits=keras.KerasTensor(logits.shape))
