"""Tests masks and extreme logits of CategoricalAttention."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from keras import ops
from latent_cases import BATCH, INPUTS, MASKED, OBJECTIVES, SOURCE, arrays, layers, run, tensors, valid_keys

from keras_vattn import CategoricalAttention, NegativeBound


def value_and_gradients(objective, inputs):
    parts = layers(objective)
    run(parts, INPUTS)
    state = np.random.default_rng(0)
    for name in ("attention", "value", "query", "words"):
        weights = parts[name].trainable_weights
        for weight in weights:
            weight.assign(state.normal(size=weight.shape))
    inputs = tensors(inputs)
    watched = {name: x for name, x in inputs.items() if x.dtype.is_floating}
    with tf.GradientTape() as tape:
        tape.watch(list(watched.values()))
        bound, _ = run(parts, inputs, training=True)
        loss = NegativeBound(ignore_class=0)(inputs["targets"], bound) + sum(parts["attention"].losses)
    weights = [w.value for part in parts.values() for w in part.trainable_weights]
    gradients = tape.gradient(loss, [*watched.values(), *weights], unconnected_gradients="zero")
    gradients = [tf.convert_to_tensor(x).numpy() for x in gradients]
    return bound.numpy(), float(loss), dict(zip(watched, gradients)), gradients[len(watched) :]


@pytest.mark.parametrize("name", ["elbo-sample", "elbo-enumerate", "top_k", "elbo-gumbel", "wake-sleep"])
def test_masked_keys_and_queries_change_nothing(name):
    """Masked values may even be infinity or NaN. Results of rows without a valid key stay finite."""
    bound, loss, by_input, by_weight = value_and_gradients(OBJECTIVES[name], MASKED)
    assert np.isfinite(bound).all() and all(np.isfinite(x).all() for x in [*by_input.values(), *by_weight])
    masked_keys, masked_queries = ~MASKED["memory_mask"], MASKED["targets"] == 0
    assert (by_input["memory"][masked_keys] == 0).all()
    assert (by_input["posterior_logits"][masked_queries] == 0).all()
    assert (by_input["posterior_logits"][~valid_keys(MASKED)] == 0).all()
    changed = {name: x.copy() for name, x in MASKED.items()}
    changed["memory"][masked_keys] = 1e3
    changed["posterior_logits"][~valid_keys(MASKED)] = np.nan
    other = value_and_gradients(OBJECTIVES[name], changed)
    valid_words = ~masked_queries
    np.testing.assert_allclose(other[0][valid_words], bound[valid_words], rtol=1e-5, atol=1e-6)
    assert other[1] == pytest.approx(loss, rel=1e-5)
    for one, two in zip(by_weight, other[3], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


def test_a_causal_mask():
    layer = CategoricalAttention(objective="marginal")
    query = arrays(steps=SOURCE)["query"]
    latent = layer(query, INPUTS["memory"], use_causal_mask=True)
    visible = np.tri(SOURCE, dtype=bool)
    assert (np.exp(latent["log_prior"].numpy())[:, ~visible] == 0).all()
    assert (latent["candidates"].numpy()[:, ~visible] == 0).all()
    changed = INPUTS["memory"].copy()
    changed[:, 3:] = np.nan
    other = layer(query[:, :3], changed, use_causal_mask=True)
    np.testing.assert_array_equal(other["candidates"], latent["candidates"][:, :3])
    masked = layer(query, INPUTS["memory"], attention_mask=np.broadcast_to(visible, (BATCH, SOURCE, SOURCE)))
    np.testing.assert_array_equal(masked["log_prior"], latent["log_prior"])


@st.composite
def masked_calls(draw):
    batch, steps, source, width = (draw(st.integers(1, 4)) for _ in range(4))
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    scale = draw(st.sampled_from([0.0, 1.0, 1e4]))
    floats = {
        "query": generator.normal(size=(batch, steps, width)),
        "value": generator.normal(size=(batch, source, width)),
        "logits": scale * generator.normal(size=(batch, steps, source)),
        "posterior_logits": scale * generator.normal(size=(batch, steps, source)),
    }
    masks = {
        "value_mask": draw(hnp.arrays(bool, (batch, source))),
        "attention_mask": draw(hnp.arrays(bool, (batch, steps, source))),
        "query_mask": draw(hnp.arrays(bool, (batch, steps))),
    }
    return {name: tf.constant(x, tf.float32) for name, x in floats.items()}, masks


@pytest.mark.slow
@hypothesis.settings(max_examples=25)
@hypothesis.given(masked_calls(), st.sampled_from(["elbo/enumerate", "elbo/sample", "elbo/gumbel"]))
def test_masks_are_exact_and_everything_is_finite(arguments, objective):
    floats, masks = arguments
    layer = CategoricalAttention(objective=objective, seed=1)
    with tf.GradientTape() as tape:
        tape.watch(floats)
        latent = layer(**floats, **masks, training=True)
        weights = ops.exp(latent["log_prior"])
        total = ops.sum(latent["candidates"]) + ops.sum(weights * latent["log_posterior"]) + layer.losses[0]
    gradients = tape.gradient(total, floats, unconnected_gradients="zero")
    valid = masks["attention_mask"] & masks["value_mask"][:, None]
    for x in [*latent.values(), total, *gradients.values()]:
        assert np.isfinite(tf.convert_to_tensor(x)).all()
    assert float(layer.losses[0]) >= 0
    empty = ~valid.any(-1)
    assert (latent["candidates"].numpy()[empty] == 0).all()
    assert (gradients["logits"].numpy()[~valid] == 0).all()
    assert (gradients["posterior_logits"].numpy()[~valid] == 0).all()
    assert (gradients["value"].numpy()[~valid.any(1)] == 0).all()
    if objective == "elbo/enumerate":
        assert (weights.numpy()[~valid] == 0).all()
        np.testing.assert_allclose(weights.numpy().sum(-1), ~empty, atol=1e-5)
    if not (masks["query_mask"] & ~empty).any():
        assert float(layer.losses[0]) == 0
