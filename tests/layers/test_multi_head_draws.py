"""The draws of MultiHeadAttention: who draws for itself, from which seed, and the same in every kind of call."""

import numpy as np
import pytest
import tensorflow as tf
from multi_head_cases import (
    GENERATOR,
    HEADS,
    QUERY,
    STOCHASTIC,
    VALUE,
    VALUE_MASK,
    WIDTH,
    assert_close,
    copy_keras_weights,
    model_of,
    pair,
)

import keras_vattn
from keras_vattn import LogNormal, MultiHeadAttention, Weibull


@pytest.mark.parametrize("alignment", [Weibull(1e7), LogNormal(1e-6)], ids=["weibull", "lognormal"])
def test_without_noise_training_is_softmax(alignment):
    layers = pair(alignment=alignment)
    assert_close(*(layer(QUERY, VALUE, training=True) for layer in layers), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("alignment", list(STOCHASTIC))
def test_heads_queries_and_examples_draw_for_themselves(alignment):
    """Where all see the same, only the noise makes weights differ; it is uncorrelated within 5 standard errors."""
    layer = MultiHeadAttention(4, 3, alignment=alignment, seed=3)
    query, value = np.ones((5, 6, 2), "float32"), np.ones((5, 50, 2), "float32")
    _, weights = layer(query, value, return_attention_scores=True, training=True)
    rows = np.log(np.maximum(weights.numpy(), 1e-30)).reshape(-1, 50)
    correlations = np.corrcoef(rows)[np.triu_indices(len(rows), 1)]
    assert np.abs(correlations).max() < 5.0 / np.sqrt(50)


@pytest.mark.parametrize("alignment", list(STOCHASTIC))
def test_the_mean_of_the_draws_of_a_seed_is_not_the_draw(alignment):
    first, same, other = (MultiHeadAttention(HEADS, WIDTH, alignment=alignment, seed=seed) for seed in (1, 1, 2))
    for layer in (first, same, other):
        layer.build(QUERY.shape, VALUE.shape)
        copy_keras_weights(layer, first)
    draws = [layer(QUERY, VALUE, training=True).numpy() for layer in (first, same, other)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert np.any(draws[0] != draws[2])
    mean = first(QUERY, VALUE).numpy()
    assert np.any(draws[0] != mean)
    with keras_vattn.posterior_draws(first, seed=5):
        drawn = first(QUERY, VALUE).numpy()
        np.testing.assert_array_equal(first(QUERY, VALUE), drawn)
    assert np.any(drawn != mean)
    np.testing.assert_array_equal(first(QUERY, VALUE), mean)


def test_dropout_falls_on_the_drawn_weights():
    """The share of dropped weights is 0.3 within 4 standard errors; the kept ones are weights / 0.7; seed 5."""
    layer = MultiHeadAttention(1, 25, value_dim=25, dropout=0.3, alignment="weibull", use_bias=False, seed=5)
    query = GENERATOR.normal(size=(50, 8, 25)).astype("float32")
    value = np.broadcast_to(np.eye(25, dtype="float32"), (50, 25, 25))
    layer.build(query.shape, value.shape)
    layer.value_dense.kernel.assign(np.eye(25)[:, None])
    layer.output_dense.kernel.assign(np.eye(25)[None])
    kept, weights = layer(query, value, return_attention_scores=True, training=True)
    kept, weights = kept.numpy(), weights.numpy()[:, 0]
    dropped = kept == 0.0
    assert abs(dropped.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / dropped.size)
    np.testing.assert_allclose(kept[~dropped], weights[~dropped] / 0.7, rtol=1e-5)
    with keras_vattn.posterior_draws(layer):
        kept, weights = layer(query, value, return_attention_scores=True)
    np.testing.assert_allclose(kept, weights[:, 0], rtol=1e-5)


@pytest.mark.parametrize("alignment", ["weibull", "gumbel_softmax"])
def test_a_graph_draws_what_eager_draws(alignment):
    layers = [
        MultiHeadAttention(HEADS, WIDTH, alignment=alignment, prior="contextual", dropout=0.25, seed=7)
        for _ in range(2)
    ]
    for layer in layers:
        layer.build(QUERY.shape, VALUE.shape)
        copy_keras_weights(layer, layers[0])
        layer.prior.set_weights(layers[0].prior.get_weights())

    def call(layer, query, value, mask):
        output, weights = layer(query, value, value_mask=mask, return_attention_scores=True, training=True)
        return output, weights, layer.losses[0]

    specs = [tf.TensorSpec((None, None, 6)), tf.TensorSpec((None, None, 7)), tf.TensorSpec((None, None), tf.bool)]
    graph = tf.function(lambda *arguments: call(layers[1], *arguments), input_signature=specs)
    for size in (3, 2):
        arguments = [tf.constant(x[:size]) for x in (QUERY, VALUE, VALUE_MASK)]
        assert_close(graph(*arguments), call(layers[0], *arguments), rtol=1e-4, atol=1e-5)


def test_replicas_draw_for_themselves(two_replicas):
    with two_replicas.scope():
        layer = MultiHeadAttention(HEADS, WIDTH, alignment="weibull", prior="contextual", seed=1)
        layer.build((1, 4, 6), (1, 5, 7))
    query, value = tf.constant(QUERY[:1]), tf.constant(VALUE[:1])
    run = tf.function(lambda: two_replicas.run(lambda: (layer(query, value, training=True), layer.losses[0])))
    outputs, losses = (two_replicas.experimental_local_results(x) for x in run())
    assert np.any(outputs[0].numpy() != outputs[1].numpy())
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-6)


def test_an_export_draws_from_the_seed_it_is_given(tmp_path):
    model = model_of(MultiHeadAttention(HEADS, WIDTH, alignment="weibull", prior="contextual"))
    exported = tf.Module()
    exported.model = model
    signature = [tf.TensorSpec((None, None, 6)), tf.TensorSpec((None, None, 7)), tf.TensorSpec((), tf.int32)]

    @tf.function(input_signature=signature)
    def sample(query, value, seed):
        with keras_vattn.posterior_draws(model, seed=seed):
            return model([query, value])

    exported.sample = sample
    tf.saved_model.save(exported, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    first, same, other = (loaded.sample(QUERY, VALUE, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert np.any(first != other)
    with keras_vattn.posterior_draws(model, seed=1):
        assert_close(model([QUERY, VALUE]), first)
