"""Tests that MultiHeadAttention equals the Keras layer: fully with softmax, otherwise at inference."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from multi_head_cases import (
    ATTENTION_MASK,
    GATE,
    GENERATOR,
    HEAD_MASK,
    HEADS,
    KEY,
    KEY_MASK,
    QUERY,
    VALUE,
    VALUE_MASK,
    WIDTH,
    WINDOW,
    KerasAttention,
    assert_close,
    model_of,
    pair,
)

import keras_vattn
from keras_vattn import MultiHeadAttention

CALLS = {
    "plain": {},
    "key": {"key": KEY},
    "value-mask": {"value_mask": VALUE_MASK},
    "key-mask": {"key": KEY, "key_mask": KEY_MASK, "value_mask": VALUE_MASK},
    "attention-mask-2": {"attention_mask": ATTENTION_MASK[0]},
    "attention-mask-3": {"attention_mask": ATTENTION_MASK},
    "attention-mask-4": {"attention_mask": HEAD_MASK},
    "integer-mask": {"attention_mask": ATTENTION_MASK.astype("int32")},
    "causal": {"use_causal_mask": True},
    "causal-and-masks": {"use_causal_mask": True, "value_mask": VALUE_MASK, "attention_mask": ATTENTION_MASK},
}
OPTIONS = {
    "default": {},
    "no-bias": {"use_bias": False},
    "value-dim": {"value_dim": 5},
    "output-shape": {"output_shape": (2, 3)},
    "gate": GATE,
    "window": WINDOW,
    "dropout": {"dropout": 0.3, "seed": 4},
}


# Tests each option twice and each call at least once.
@pytest.mark.parametrize(("options", "call"), [(list(OPTIONS)[i % 7], list(CALLS)[i % 10]) for i in range(14)])
def test_softmax_gives_the_outputs_scores_and_gradients_of_keras(options, call):
    arguments = CALLS[call]
    layers = pair(key=arguments.get("key"), **OPTIONS[options])
    results = []
    for layer in layers:
        query, value = tf.constant(QUERY), tf.constant(VALUE)
        with tf.GradientTape() as tape:
            tape.watch([query, value])
            output = layer(query, value, **arguments, training=True)
            objective = tf.reduce_sum(output**2)
        gradients = tape.gradient(objective, [query, value, *layer.trainable_weights])
        scores = layer(query, value, **arguments, return_attention_scores=True)
        results.append([output, *gradients, *scores])
    assert_close(*results, rtol=1e-6)
    assert not layers[1].losses


def test_softmax_has_the_variables_of_keras():
    for options in ({}, {"dropout": 0.2}, {**GATE, "use_bias": False}):
        layers = pair(**options)
        for layer in layers:
            layer(QUERY, VALUE, training=True)
        names = [[w.path.split("/", 1)[1] for w in layer.weights] for layer in layers]
        assert names[0] == names[1]
        assert [w.shape for w in layers[0].variables] == [w.shape for w in layers[1].variables]
        assert [w.trainable for w in layers[0].variables] == [w.trainable for w in layers[1].variables]
        assert not layers[1].metrics
        assert layers[1].seed_generator is None
    with pytest.raises(ValueError, match="stochastic layer"), keras_vattn.posterior_draws(layers[1]):
        pass


@pytest.mark.parametrize(("options", "ending"), [({}, ".weights.h5"), ({"dropout": 0.1, **GATE}, ".keras")])
def test_saved_weights_load_in_either_direction(options, ending, tmp_path):
    models = [model_of(KerasAttention(HEADS, WIDTH, **options)), model_of(MultiHeadAttention(HEADS, WIDTH, **options))]
    for number, (source, target) in enumerate((models, models[::-1])):
        source.set_weights([w + 0.1 * number for w in source.get_weights()])
        path = tmp_path / f"{number}{ending}"
        source.save_weights(path) if ending == ".weights.h5" else source.save(path)
        assert np.any(np.asarray(source([QUERY, VALUE])) != np.asarray(target([QUERY, VALUE])))
        target.load_weights(path)
        assert_close(source([QUERY, VALUE]), target([QUERY, VALUE]), rtol=0, atol=0)


# Tests each call once, and each alignment with about a third of the calls.
STOCHASTIC = ("weibull", "lognormal", "gumbel_softmax")


@pytest.mark.parametrize(("alignment", "call"), [(STOCHASTIC[i % 3], call) for i, call in enumerate(CALLS)])
def test_inference_gives_the_outputs_of_keras(alignment, call):
    arguments = CALLS[call]
    layers = pair(key=arguments.get("key"), alignment=alignment, prior="contextual", value_dim=5)
    assert_close(*(layer(QUERY, VALUE, **arguments) for layer in layers))
    assert_close(*(layer(QUERY, VALUE, **arguments, return_attention_scores=True) for layer in layers))


def test_rows_without_a_valid_key_equal_keras():
    nothing = np.repeat([[True], [False], [True]], 5, axis=1)
    for scores in (False, True):
        layers = pair()
        results = [layer(QUERY, VALUE, value_mask=nothing, return_attention_scores=scores) for layer in layers]
        assert_close(*results, rtol=1e-6)


def test_inference_of_a_dirichlet_is_close_to_keras():
    """A Dirichlet clamps the logits smoothly at -10 and 10, so its mean only approximates the softmax."""
    assert_close(*(layer(QUERY, VALUE) for layer in pair(alignment="dirichlet")), rtol=0, atol=0.02)


HIGH_RANK = [
    ((3, 4), (3, 2), (4, 2), (2,)),
    ((3, 4), (3, 2), (3, 4, 2), (2,)),
    ((3, 4), (3, 2), (3, 1, 4, 2), (2,)),
    ((3, 4), (3, 2), (3, 4, 3, 2), (1, 2)),
    ((3, 4), (3, 2), (3, 4, 3, 2), None),
    ((5, 3, 4), (5, 3, 2), (3, 4, 3, 2), (2, 3)),
    ((5, 3, 4), (5, 3, 2), (5, 3, 4, 3, 2), (2, 3)),
    ((5, 3, 4), (5, 3, 2), None, (-3, -2)),
]


@pytest.mark.parametrize(("queries", "sources", "mask", "axes"), HIGH_RANK)
def test_several_axes(queries, sources, mask, axes):
    query = GENERATOR.normal(size=(3, *queries, 8)).astype("float32")
    value = GENERATOR.normal(size=(3, *sources, 8)).astype("float32")
    layers = pair(query, value, attention_axes=axes, **GATE, alignment="weibull")
    arguments = {}
    if mask is not None:
        mask = GENERATOR.random((3, *mask)) < 0.7
        mask[(..., *[0] * (len(axes) if axes else 2))] = True
        arguments["attention_mask"] = mask
    assert layers[1](query, value, **arguments).shape == query.shape
    assert_close(*(layer(query, value, **arguments, return_attention_scores=True) for layer in layers))


def test_sliding_window():
    window = WINDOW.get("sliding_window", 4)
    layer, x = MultiHeadAttention(2, 4, **WINDOW), QUERY[:, :, :4]
    distance = np.arange(4)[:, None] - np.arange(4)
    for causal, inside in ((True, (distance >= 0) & (distance < window)), (False, abs(distance) < window)):
        _, scores = layer(x, x, use_causal_mask=causal, return_attention_scores=True)
        np.testing.assert_array_equal(scores.numpy() > 0, np.broadcast_to(inside, scores.shape))


@pytest.mark.parametrize("options", [{}, {"query_chunk_size": 2}, {"alignment": "weibull"}], ids=str)
def test_activity_losses_equal_keras(options):
    """At inference, activity losses equal the losses of the Keras layer, because our layer uses mean weights."""
    layers = pair(QUERY, VALUE, activity_regularizer="l2", **options)
    losses = []
    for layer in layers:
        layer(QUERY, VALUE)
        losses.append([float(x) for x in layer.losses])
    assert len(losses[0]) == 4
    assert_close(*losses, rtol=1e-5)


def test_lora(tmp_path):
    layer = MultiHeadAttention(3, 8, use_bias=False, alignment="weibull")
    model = model_of(layer)
    for dense in (layer.query_dense, layer.key_dense, layer.value_dense):
        dense.enable_lora(2)
    assert len(layer.trainable_weights) == 7
    model.compile("sgd", "mse")
    model.fit([QUERY, VALUE], QUERY, verbose=0)
    model.save(tmp_path / "lora.keras")
    assert_close(keras.saving.load_model(tmp_path / "lora.keras")([QUERY, VALUE]), model([QUERY, VALUE]))
    model.save_weights(tmp_path / "lora.weights.h5")
    merged = model_of(MultiHeadAttention(3, 8, use_bias=False, alignment="weibull"))
    merged.load_weights(tmp_path / "lora.weights.h5")
    assert_close(merged([QUERY, VALUE]), model([QUERY, VALUE]))


def test_int8():
    layer = MultiHeadAttention(3, 8, alignment="weibull")
    expected = layer(QUERY, VALUE)
    for dense in (layer.query_dense, layer.key_dense, layer.value_dense, layer.output_dense):
        dense.quantize("int8")
        assert dense._kernel.dtype == "int8"
    assert_close(layer(QUERY, VALUE), expected, atol=0.05)
