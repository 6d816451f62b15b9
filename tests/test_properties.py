"""Tests random shapes, masks and extreme logits: no result is NaN, and masked entries are exactly zero."""

import hypothesis
import numpy as np
import tensorflow as tf
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import keras_vattn

sizes = st.integers(1, 5)


@st.composite
def inputs(draw):
    batch, steps, length, width = draw(sizes), draw(sizes), draw(sizes), draw(sizes)
    scale = draw(st.sampled_from([0.0, 1.0, 100.0]))
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    query = (scale * generator.normal(size=(batch, steps, width))).astype("float32")
    value = (scale * generator.normal(size=(batch, length, width))).astype("float32")
    masks = {
        "value_mask": draw(hnp.arrays(bool, (batch, length))),
        "query_mask": draw(hnp.arrays(bool, (batch, steps))),
        "attention_mask": draw(st.none() | hnp.arrays(bool, (batch, steps, length))),
        "use_causal_mask": draw(st.booleans()),
    }
    return query, value, masks


def allowed(query, value, masks):
    steps, length = query.shape[1], value.shape[1]
    mask = np.broadcast_to(masks["value_mask"][:, None], (len(query), steps, length)).copy()
    if masks["attention_mask"] is not None:
        mask &= masks["attention_mask"]
    if masks["use_causal_mask"]:
        mask &= np.tri(steps, length, dtype=bool)
    return mask


@hypothesis.given(
    inputs(), st.sampled_from(["dot_product", "bilinear", "additive"]), st.sampled_from(["standard", "mean"])
)
def test_values_and_gradients_are_finite_and_masks_exact(arrays, score, prior):
    query, value, masks = arrays
    layer = keras_vattn.GaussianAttention(score=score, context_prior=prior, seed=1)
    query, value = tf.constant(query), tf.constant(value)
    with tf.GradientTape() as tape:
        tape.watch([query, value])
        context, weights = layer(query, value, return_attention_scores=True, training=True, **masks)
        loss = tf.reduce_sum(context) + layer.losses[0]
    gradients = tape.gradient(loss, [query, value, *layer.trainable_variables])
    for result in (context, weights, layer.losses[0], *gradients):
        assert result is None or np.isfinite(result.numpy()).all()
    valid = allowed(query.numpy(), value.numpy(), masks)
    weights = weights.numpy()
    assert (weights[~valid] == 0).all()
    np.testing.assert_allclose(weights.sum(-1), valid.any(-1), atol=1e-5)
    assert (context.numpy()[~valid.any(-1)] == 0).all()
    assert float(layer.losses[0]) >= 0
