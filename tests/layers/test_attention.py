import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax

from keras_vattn import (
    Attention,
    BayesianAttention,
    CategoricalAttention,
    DeterministicAttention,
    GaussianAttention,
    MultiHeadAttention,
)

GENERATOR = np.random.default_rng(1)
QUERY = GENERATOR.normal(size=(2, 3, 4)).astype("float32")
VALUE = GENERATOR.normal(size=(2, 5, 4)).astype("float32")
KEY = GENERATOR.normal(size=(2, 5, 4)).astype("float32")
VALUE_MASK = np.array([[True, True, True, False, True], [True, False, True, True, True]])
KEY_MASK = np.array([[True, True, False, True, True], [True, True, True, True, True]])
ATTENTION_MASK = GENERATOR.random((2, 3, 5)) < 0.8
ATTENTION_MASK[..., 0] = True


def reference(query, value, key, mask=None):
    logits = np.einsum("btd,bsd->bts", query, key)
    weights = softmax(logits if mask is None else np.where(mask, logits, -np.inf), axis=-1)
    return weights @ value, weights


def test_it_equals_the_attention_of_keras():
    expected = keras.layers.Attention()([QUERY, VALUE, KEY], use_causal_mask=True)
    np.testing.assert_allclose(Attention()(QUERY, VALUE, KEY, use_causal_mask=True), expected, rtol=1e-5, atol=1e-6)


def test_key_and_all_masks():
    masks = {"value_mask": VALUE_MASK, "key_mask": KEY_MASK, "attention_mask": ATTENTION_MASK}
    context, weights = Attention()(QUERY, VALUE, KEY, **masks, return_attention_scores=True, use_causal_mask=True)
    causal = np.tril(np.ones((3, 5), bool))
    mask = VALUE_MASK[:, None] & KEY_MASK[:, None] & ATTENTION_MASK & causal
    expected = reference(QUERY, VALUE, KEY, mask)
    np.testing.assert_allclose(context, expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(weights, expected[1], rtol=1e-5, atol=1e-6)
    assert (weights.numpy()[~mask] == 0.0).all()


@pytest.mark.parametrize(
    "layer",
    [
        GaussianAttention(context_prior="mean", kl_reduction="mean", seed=1),
        BayesianAttention(distribution="lognormal", kl_reduction="mean", seed=1),
        CategoricalAttention(objective="elbo/enumerate", kl_reduction="mean"),
        MultiHeadAttention(2, 3, alignment="weibull", prior="contextual", kl_reduction="mean", seed=1),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_a_mask_of_queries_and_keys_broadcasts(layer):
    """A mask (T, S) applies to all examples, as in Keras's layers. Mask axes of length one are broadcast."""
    options = {"return_attention_scores": True}
    if isinstance(layer, CategoricalAttention):
        options["posterior_logits"] = tf.constant(QUERY @ VALUE.swapaxes(1, 2))
    mask = ATTENTION_MASK & ATTENTION_MASK[::-1]
    layer(QUERY, VALUE, **options)
    for partial_mask in (mask, mask[:1], mask[:, 1:2], mask[..., 1:2], mask[0], mask[0, 1:2], mask[0, :, 1:2]):
        results, full = [], np.broadcast_to(partial_mask, mask.shape)
        for attention_mask in (partial_mask, full):
            copy = layer.from_config(layer.get_config())
            copy(QUERY, VALUE, **options)
            copy.set_weights(layer.get_weights())
            outputs = copy(QUERY, VALUE, attention_mask=attention_mask, **options, training=True)
            results.append([*tf.nest.flatten(outputs), *copy.losses])
        for one, other in zip(*results, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        inputs = [keras.Input(batch_shape=x.shape, dtype=x.dtype.name) for x in (QUERY, VALUE, partial_mask)]
        symbolic = tf.nest.flatten(layer(*inputs[:2], attention_mask=inputs[2], **options))
        assert [x.shape for x in symbolic] == [x.shape for x in results[1][: len(symbolic)]]


def test_dropout_is_on_the_weights_without_renormalisation():
    """A fraction of 0.3 of the weights is dropped, within 4 standard errors; the others are divided by 0.7; seed 5."""
    layer, shape = DeterministicAttention(dropout=0.3, seed=5), (50, 8, 25)
    value = np.broadcast_to(np.eye(25, dtype="float32"), (50, 25, 25))
    query = GENERATOR.normal(size=(50, 8, 25)).astype("float32")
    context, weights = layer(query, value, return_attention_scores=True, training=True)
    context, weights = context.numpy(), weights.numpy()
    dropped = context == 0.0
    assert abs(dropped.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / np.prod(shape))
    np.testing.assert_allclose(context[~dropped], weights[~dropped] / 0.7, rtol=1e-5)
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(layer(query, value), weights, rtol=1e-5)


def test_gradients_by_finite_differences():
    layer = Attention(score="bilinear", context="gaussian")
    layer(QUERY, VALUE)

    def value(query):
        return tf.reduce_sum(layer(query, VALUE, value_mask=VALUE_MASK) ** 2) + layer.losses[0]

    query = tf.constant(QUERY)
    with tf.GradientTape() as tape:
        tape.watch(query)
        result = value(query)
    direction = tf.constant(np.random.default_rng(3).normal(size=QUERY.shape), tf.float32)
    numeric = (value(query + 1e-2 * direction) - value(query - 1e-2 * direction)) / 2e-2
    assert float(tf.reduce_sum(tape.gradient(result, query) * direction)) == pytest.approx(float(numeric), rel=1e-2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"query": QUERY[:1]}, "equal batch sizes"),
        ({"query": QUERY[0]}, r"`query` must have shape.*Received: query\.shape=\(3, 4\)"),
        ({"key": KEY[:, :4]}, r"equal batch sizes and lengths.*Received: key\.shape=\(2, 4, 4\)"),
        ({"value_mask": VALUE_MASK[:, :3]}, r"`value_mask`.*Received: value_mask\.shape=\(2, 3\)"),
        ({"key_mask": KEY_MASK[:, None]}, r"`key_mask`.*Received: key_mask\.shape=\(2, 1, 5\)"),
        ({"attention_mask": ATTENTION_MASK[:, 0]}, r"`attention_mask`.*Received: attention_mask\.shape=\(2, 5\)"),
    ],
)
def test_mismatched_inputs(arguments, message):
    with pytest.raises(ValueError, match=message):
        Attention()(**{"query": QUERY, "value": VALUE, **arguments})


def test_distributions_of_a_deterministic_attention():
    layer = DeterministicAttention()
    with pytest.raises(ValueError, match="Call the layer once"):
        layer.posterior_distribution(QUERY, VALUE)
    context = layer(QUERY, VALUE)
    np.testing.assert_allclose(layer.posterior_distribution(QUERY, VALUE).mean(), context, rtol=1e-6)
    with pytest.raises(ValueError, match=r'no prior.*context="gaussian"'):
        layer.prior_distribution(QUERY, VALUE)


def test_a_list_of_inputs_as_in_keras():
    layer, keras_layer, key = BayesianAttention(), keras.layers.Attention(), KEY
    np.testing.assert_array_equal(layer([QUERY, VALUE]), layer(QUERY, VALUE))
    np.testing.assert_array_equal(layer([QUERY, VALUE, key]), layer(QUERY, VALUE, key))
    np.testing.assert_allclose(layer([QUERY, VALUE, key]), keras_layer([QUERY, VALUE, key]), rtol=1e-5, atol=1e-6)
    masks = np.arange(QUERY.shape[1]) < 2, np.arange(VALUE.shape[1]) < 3
    masks = [np.broadcast_to(mask, (len(QUERY), len(mask))) for mask in masks]
    np.testing.assert_array_equal(
        layer([QUERY, VALUE], mask=masks), layer(QUERY, VALUE, query_mask=masks[0], value_mask=masks[1])
    )
    inputs = [keras.Input(x.shape[1:]) for x in (QUERY, VALUE)]
    model = keras.Model(inputs, layer(inputs))
    copy = keras.Model.from_config(model.get_config())
    np.testing.assert_array_equal(copy([QUERY, VALUE]), model([QUERY, VALUE]))
    for wrong in ([QUERY], [QUERY, VALUE, key, key]):
        with pytest.raises(ValueError, match=r"A list of inputs is \[query, value\].*Received: a list of"):
            layer(wrong)
