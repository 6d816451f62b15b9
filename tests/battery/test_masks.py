"""Checks that masked entries change nothing, in every public layer with a mask."""

import numpy as np
import pytest
import tensorflow as tf
from battery_cases import BATCH, SOURCE
from battery_checks import all_finite, assert_close, assert_equal, value_and_gradients
from battery_decoder import DecoderCase
from battery_table import rows, rows_with_key_mask
from keras import ops

from keras_vattn.support import keras_private


@rows_with_key_mask
@pytest.mark.parametrize("training", [False, True])
def test_masked_keys_change_nothing(case, training):
    arrays, masks = case.arrays(), case.masks()
    memory = case.source_arguments[0]
    masked = ~masks[case.key_mask].numpy()
    changed = {**arrays, memory: tf.where(masked[..., None], arrays[memory] + 50.0, arrays[memory])}
    layers = [case.built(seed=5) for _ in range(2)] if case.draws else [case.built() for _ in range(2)]
    layers[1].set_weights(layers[0].get_weights())
    first = value_and_gradients(case, layers[0], arrays, masks, training)
    second = value_and_gradients(case, layers[1], changed, masks, training)
    assert_equal(first[0], second[0])
    assert_equal(first[1], second[1])
    for gradient, other in zip(first[2].values(), second[2].values()):
        assert_close(gradient, other, rtol=1e-5, atol=1e-6)
    for gradients in (first[2], second[2]):
        assert (gradients[memory].numpy()[masked] == 0.0).all()
        assert (gradients[memory].numpy()[~masked] != 0.0).any()


@rows(lambda case: case.query_mask or case.key_mask, costly=True)
def test_a_mask_on_an_input_reaches_every_layer_that_reads_it(case):
    """A call does not remove the masks of its inputs, so a second call gives the same results."""
    layer, arrays, masks = case.built(), case.arrays(), case.masks()
    first_input = next(iter(arrays))
    input_masks = {first_input if name == "mask" else name.removesuffix("_mask"): x for name, x in masks.items()}
    for name, mask in input_masks.items():
        keras_private.set_mask(arrays[name], mask)
    calls = []
    for _ in range(2):
        calls.append([layer(**arrays), layer.losses])
        assert all(keras_private.mask_of(x) is input_masks.get(name) for name, x in arrays.items())
    assert_equal(*calls)
    if case.key_mask:
        assert_equal(calls[0], [layer(**arrays, **masks), layer.losses])


@rows(lambda case: case.key_mask and case.shows_weights, costly=True)
def test_masked_keys_have_no_weight_and_the_rest_sums_to_one(case):
    arrays, masks = case.arrays(), case.masks()
    result = case.built()(**arrays, **masks, return_attention_scores=True)
    for weights in case.attention_weights(result):
        masked = np.expand_dims(~masks[case.key_mask].numpy(), tuple(range(1, len(weights.shape) - 1)))
        masked = np.broadcast_to(masked, weights.shape)
        assert (weights.numpy()[masked] == 0.0).all()
        valid = weights.numpy()[~masked]
        assert (valid >= 0.0).all() if case.is_sparse else (valid > 0.0).all()
        np.testing.assert_allclose(ops.sum(weights, axis=-1), 1.0, rtol=1e-6)


@rows(lambda case: case.log_probabilities)
def test_candidates_without_a_probability_change_nothing(case):
    """At inference all keys are candidates, and masked keys have log probabilities of -1e30."""
    layer, arrays = case.built(), case.arrays()
    lengths = np.array([5, 3, 1, 0])  # the last row has no valid key
    shape = arrays["log_likelihood"].shape
    masked = np.broadcast_to(np.arange(shape[-1]) >= lengths[:, None, None], shape)
    for name in case.log_probabilities:
        arrays[name] = tf.where(masked, -1e30, arrays[name])
    some = masked & (lengths > 0)[:, None, None]
    changed = {**arrays, "log_likelihood": tf.where(some, arrays["log_likelihood"] - 50.0, arrays["log_likelihood"])}
    results = [value_and_gradients(case, layer, x, training=False) for x in (arrays, changed)]
    assert_equal(*results)
    for name in case.widths:
        assert (results[0][2][name].numpy()[some] == 0.0).all()
    assert (results[0][2]["log_likelihood"].numpy()[~masked] != 0.0).any()
    for training in (False, True):
        assert all_finite(value_and_gradients(case, layer, arrays, training=training))


@rows(lambda case: case.divergence and case.query_mask, costly=True)
def test_masked_queries_add_no_divergence(case):
    arrays, masks = case.arrays(), case.masks()
    layer = case.built()
    query = next(name for name in case.widths if name not in case.source_arguments)
    masked = ~masks[case.query_mask].numpy()
    with tf.GradientTape() as tape:
        tape.watch(arrays[query])
        layer(**arrays, **masks)
        loss = layer.losses[0]
    np.testing.assert_allclose(loss, case.expected_loss(layer, arrays, masks), rtol=1e-5)
    assert (tape.gradient(loss, arrays[query]).numpy()[masked] == 0.0).all()
    nothing = {**masks, case.query_mask: tf.zeros_like(masks[case.query_mask])}
    layer(**arrays, **nothing)
    assert float(layer.losses[0]) == 0.0


@rows_with_key_mask
@pytest.mark.parametrize("training", [False, True])
def test_a_row_without_a_valid_key(case, training):
    arrays = case.arrays()
    lengths = np.array([SOURCE, 0, 2, SOURCE])
    masks = {case.key_mask: tf.constant(np.arange(SOURCE) < lengths[:, None])}
    layer = case.built(seed=5) if case.draws else case.built()
    result, value, gradients = value_and_gradients(case, layer, arrays, masks, training)
    assert (case.context(result).numpy()[1] == 0.0).all()
    assert all_finite([result, value, gradients])
    memory = case.source_arguments[0]
    assert (gradients[memory].numpy()[1] == 0.0).all()
    if case.divergence and not training:
        divergences = case.expected_divergences(layer, arrays, masks)
        assert (divergences[1] == 0.0).all()
        np.testing.assert_allclose(layer.losses[0], divergences.sum() / BATCH, rtol=1e-5)
    if case.divergence and training and not isinstance(case, DecoderCase):
        one_row = {name: x[1:2] for name, x in {**arrays, **masks}.items()}
        layer(**one_row, training=True)
        assert float(layer.losses[0]) == 0.0
