"""The KL of MultiHeadAttention: its sum over heads, its weight, and what masks leave out of it."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from multi_head_cases import (
    HEAD_MASK,
    HEADS,
    QUERY,
    QUERY_MASK,
    STOCHASTIC,
    VALUE,
    VALUE_MASK,
    WIDTH,
    assert_close,
    log_psi,
    model_of,
    projections,
)
from scipy.special import log_softmax
from tensorflow_probability.python import distributions as tfd

from keras_vattn import Alignment, GammaPrior, LinearAnnealing, MultiHeadAttention, Weibull, distributions


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


@pytest.mark.parametrize(("masks", "num_keys"), [({}, 15), ({"value_mask": VALUE_MASK}, VALUE_MASK.sum())])
def test_reductions_count_queries_and_entries_of_all_heads(masks, num_keys):
    losses = {}
    for reduction in ("sum", "query_mean", "mean"):
        keras.utils.set_random_seed(1)
        layer = MultiHeadAttention(HEADS, WIDTH, alignment="weibull", prior="contextual", kl_reduction=reduction)
        layer(QUERY, VALUE, **masks)
        losses[reduction] = float(layer.losses[0])
    assert losses["query_mean"] == pytest.approx(losses["sum"] / 4, rel=1e-5)
    assert losses["mean"] == pytest.approx(3 * losses["sum"] / (HEADS * 4 * num_keys), rel=1e-5)


class Rows(distributions.RowDistribution):
    """Its KL is 1 everywhere, also in a row that has no key."""

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


def test_the_query_mask_of_keras_counts_as_a_given_one():
    layer = MultiHeadAttention(HEADS, WIDTH, alignment="weibull", prior="contextual")
    layer(QUERY, VALUE, query_mask=QUERY_MASK, value_mask=VALUE_MASK)
    given = float(layer.losses[0])
    query, value = tf.constant(QUERY), tf.constant(VALUE)
    query._keras_mask, value._keras_mask = tf.constant(QUERY_MASK), tf.constant(VALUE_MASK)
    layer(query, value)
    assert float(layer.losses[0]) == pytest.approx(given, rel=1e-6)
    layer(QUERY, VALUE, value_mask=VALUE_MASK)
    assert float(layer.losses[0]) > given


@pytest.mark.parametrize("alignment", list(STOCHASTIC))
def test_a_masked_key_has_no_weight_no_gradient_and_no_divergence_in_any_head(alignment):
    layer = MultiHeadAttention(HEADS, WIDTH, alignment=alignment, prior="contextual", seed=1)
    layer.build(QUERY.shape, VALUE.shape)
    value = tf.constant(VALUE)
    seed_state = layer.seed_generator.state.numpy()
    results = []
    for shift in (0.0, 30.0):
        layer.seed_generator.state.assign(seed_state)
        moved = tf.where(VALUE_MASK[..., None], value, value + shift)
        with tf.GradientTape() as tape:
            tape.watch(moved)
            output, weights = layer(
                QUERY,
                moved,
                value_mask=VALUE_MASK,
                attention_mask=HEAD_MASK,
                return_attention_scores=True,
                training=True,
            )
            loss = layer.losses[0]
            objective = tf.reduce_sum(output**2) + loss
        results.append([output, weights, loss])
        gradient = tape.gradient(objective, moved).numpy()
        assert (gradient[~VALUE_MASK] == 0.0).all()
        assert (gradient[VALUE_MASK] != 0.0).any(axis=-1).all()
    assert_close(*results, rtol=0, atol=0)
    mask = VALUE_MASK[:, None, None] & HEAD_MASK
    assert (weights.numpy()[~mask] == 0.0).all()
    assert (weights.numpy()[mask] > 0.0).all()
    np.testing.assert_allclose(weights.numpy().sum(axis=-1), 1.0, rtol=1e-5)


NOTHING = np.array([[True] * 5, [False] * 5, [True] * 5])


@pytest.mark.parametrize("alignment", list(STOCHASTIC))
@pytest.mark.parametrize("training", [False, True])
def test_rows_without_a_valid_key_have_no_weight_and_no_divergence(alignment, training):
    layer = MultiHeadAttention(HEADS, WIDTH, alignment=alignment, prior="contextual")
    layer.build(QUERY.shape, VALUE.shape)
    layer.output_dense.bias.assign(tf.ones(6))
    value = tf.constant(VALUE)
    with tf.GradientTape() as tape:
        tape.watch(value)
        output, weights = layer(QUERY, value, value_mask=NOTHING, return_attention_scores=True, training=training)
        objective = tf.reduce_sum(output**2) + layer.losses[0]
    assert (weights.numpy()[1] == 0.0).all()
    assert (output.numpy()[1] == 1.0).all()
    gradients = tape.gradient(objective, [value, *layer.trainable_weights])
    assert all(np.isfinite(x).all() for x in gradients)
    assert (gradients[0].numpy()[1] == 0.0).all()
    layer(QUERY[1:2], VALUE[1:2], value_mask=NOTHING[1:2], training=training)
    assert float(layer.losses[0]) == 0.0


@pytest.mark.parametrize("prior", [None, "contextual"])
def test_training_calls_are_counted_and_anneal_the_weight(prior):
    layer = MultiHeadAttention(
        HEADS,
        WIDTH,
        alignment="weibull",
        prior=prior,
        kl_annealing=LinearAnnealing(4, final_value=0.5),
        name="attention",
    )
    model = model_of(layer)
    model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
    history = model.fit([QUERY, VALUE], QUERY, epochs=3, batch_size=3, verbose=0).history
    assert int(layer.training_calls.value) == 3
    assert ("attention_kl" in history) == (prior is not None)
    layer(QUERY, VALUE, training=False)
    weights = [0.5] if prior else []
    assert [float(x) for x in layer.losses] == [
        pytest.approx(w * history["attention_kl"][0], rel=1e-5) for w in weights
    ]
