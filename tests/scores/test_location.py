"""Tests Luong's location-based score: logits depend only on the query, and words past `max_length` are ignored."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vattn import Attention, AttentionDecoder, CategoricalAttention, Location, scores

QUERY = np.random.default_rng(1).normal(size=(2, 3, 4)).astype("float32")
KEY = np.random.default_rng(2).normal(size=(2, 5, 6)).astype("float32")


def softmax(logits, mask=True):
    weights = np.where(mask, np.exp(logits - logits.max()), 0.0)
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("length", [5, 3, 1, 0])
def test_each_position_has_a_row_of_w(length):
    layer = Location(max_length=5)
    logits = layer(QUERY, KEY[:, :length])
    assert logits.dtype == tf.float32
    np.testing.assert_allclose(logits, (QUERY @ layer.kernel.numpy())[..., :length], rtol=1e-5, atol=1e-6)


def test_the_name_uses_the_number_of_keys():
    layer = scores.get("location")
    layer(QUERY, KEY)
    assert layer.kernel.shape == (4, 5)
    with pytest.raises(ValueError, match=r"needs `max_length` if the number of keys.*key_shape=\(None, None, 6\)"):
        Attention("location")(keras.Input((3, 4)), keras.Input((None, 6)))


def test_a_memory_that_is_too_long_raises_an_error():
    with pytest.raises(ValueError, match=r"memory is longer.*key\.shape=\(2, 5, 6\), max_length=4"):
        Location(max_length=4).build(QUERY.shape, KEY.shape)
    layer = Attention(Location(max_length=4))
    layer(QUERY, KEY[:, :4])
    with pytest.raises(ValueError, match=r"memory is longer.*key\.shape=\(2, 5, 6\), max_length=4"):
        layer(QUERY, KEY)


@pytest.mark.parametrize("alignment", ["softmax", "dirichlet"])
def test_keys_past_the_end_are_masked_in_a_graph_of_unknown_lengths(alignment):
    layer = Attention(Location(max_length=4), alignment)
    layer(QUERY, KEY[:, :4])
    unknown = tf.TensorSpec((2, None, 6))
    graph = tf.function(lambda key: layer(QUERY, key, return_attention_scores=True), input_signature=[unknown])
    for length in (3, 5):
        context, weights = graph(KEY[:, :length])
        expected = layer(QUERY, KEY[:, : min(length, 4)], return_attention_scores=True)
        np.testing.assert_allclose(context, expected[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(weights[..., :4], expected[1], rtol=1e-5, atol=1e-6)
        assert (weights.numpy()[..., 4:] == 0.0).all()


def test_weights_under_a_mask():
    layer, mask = Attention(Location(max_length=8)), np.arange(5) < [[5], [2]]
    context, weights = layer(QUERY, KEY, value_mask=mask, return_attention_scores=True)
    expected = softmax((QUERY @ layer.score.kernel.numpy())[..., :5], mask[:, None])
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    np.testing.assert_allclose(context, expected @ KEY, atol=4e-6)
    assert (weights.numpy()[~np.broadcast_to(mask[:, None], weights.shape)] == 0.0).all()


@pytest.mark.parametrize("query", ["current", "previous"])
def test_in_a_decoder_of_unknown_lengths(query):
    decoder = AttentionDecoder(6, Attention(Location(max_length=7)), query=query)
    expected = decoder(QUERY, KEY, return_attention_scores=True, return_logits=True)
    logits = expected["query"].numpy() @ decoder.attention.score.kernel.numpy()
    np.testing.assert_allclose(expected["weights"], softmax(logits[..., :5]), rtol=1e-5, atol=1e-6)

    @tf.function(input_signature=[tf.TensorSpec((None, None, 4)), tf.TensorSpec((None, None, 6))])
    def gradients(inputs, memory):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(decoder(inputs, memory, training=True)["context"] ** 2)
        return tape.gradient(loss, [x.value for x in decoder.trainable_weights])

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(decoder(QUERY, KEY)["context"] ** 2)
    for one, two in zip(gradients(QUERY, KEY), tape.gradient(loss, [x.value for x in decoder.trainable_weights])):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


def test_hidden_keys_have_no_probability_in_latent_alignment():
    """The most negative float as a logit acts as a mask, even if all keys of a query have this logit."""
    logits = np.random.default_rng(3).normal(size=(2, 3, 5)).astype("float32")
    posterior = np.random.default_rng(4).normal(size=(2, 3, 5)).astype("float32")
    mask = np.random.default_rng(5).uniform(size=(2, 3, 5)) < 0.6
    mask[0, 1] = False
    layer = CategoricalAttention(objective="elbo")
    hidden = np.where(mask, logits, np.float32(-3.4e38))
    options = {"posterior_logits": posterior, "return_attention_scores": True}
    latent, loss = layer(QUERY, KEY, logits=hidden, **options), float(layer.losses[0])
    expected = layer(QUERY, KEY, logits=logits, attention_mask=mask, **options)
    for name in ("log_prior", "log_posterior", "weights", "posterior_weights"):
        np.testing.assert_array_equal(latent[name], expected[name])
    assert loss == float(layer.losses[0])
