"""Tests that operations that all draws share run once per batch, and that sharing does not change the draws."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops
from predictive_cases import D, RecordRows, X
from tiers import slow_after

import keras_vattn
from keras_vattn import Attention, GaussianLatent, Sampler
from keras_vattn import posterior_predictive as draw
from keras_vattn.draws.shared_prefix import SharedPrefix

IDS = np.array([[1, 2, 0], [3, 0, 0], [4, 5, 6], [2, 2, 0], [1, 0, 0]])
BATCHES, DRAWS = [3, 2], [6, 6, 3, 6, 4]


def attend(x, **options):
    return Attention("bilinear", alignment="weibull", **options)(x, x)


def masked(record):
    inputs = keras.Input((None,), dtype="int32")
    x = record(layers.Embedding(9, D, mask_zero=True)(inputs))
    return keras.Model(inputs, layers.GlobalAveragePooling1D()(layers.Add()([x, attend(x)])))


def nested(record):
    """Return a model that calls an inner model twice. Masks enter and leave the inner model."""
    tokens, x, dense = keras.Input((None,), dtype="int32"), keras.Input((None, D)), layers.Dense(D)
    inner = keras.Model(x, {"drawn": dense(attend(dense(record(x)))), "mean": ops.mean(x, axis=1)})
    inner.supports_masking = True
    embedded = layers.Embedding(9, D, mask_zero=True)(tokens)
    first = inner(embedded)
    second = inner(layers.Add()([first["drawn"], embedded]))
    return keras.Model(tokens, [layers.GlobalAveragePooling1D()(second["drawn"]), first["mean"], second["mean"]])


def dictionary_inputs(record):
    """Return a model with dictionaries, keyword arguments, and outputs that do not depend on the draw."""
    inputs = {"x": keras.Input((None, D), name="x"), "ids": keras.Input((None,), dtype="int32", name="ids")}
    x = record(layers.Dense(D)(inputs["x"]))
    layer = keras_vattn.MultiHeadAttention(2, 2, alignment="weibull")
    drawn = layer(query=x, value=x, attention_mask=ops.expand_dims(inputs["ids"] != 0, 1))
    return keras.Model(inputs, {"drawn": drawn, "features": x, "ids": inputs["ids"]})


def transposed(record):
    inputs = keras.Input((None, D))
    x = record(ops.transpose(layers.Dense(D)(inputs), (1, 0, 2)))
    return keras.Model(inputs, attend(ops.transpose(x, (1, 0, 2))))


# For each name: the model, its inputs, and the expected numbers of rows in the calls of the recording layer.
MODELS = {
    "masked": (masked, IDS, BATCHES),
    "nested": (nested, IDS, BATCHES + DRAWS),
    "inputs": (dictionary_inputs, {"x": X, "ids": IDS}, BATCHES),
    "transposed": (transposed, np.repeat(X, 2, axis=1)[:, :4], [4] * 2),
}


def unshared_draws(model, inputs, patch, **options):
    """Return the draws of the model if no operation is shared between draws."""
    with patch.context() as patched:
        patched.setattr(SharedPrefix, "_operations", lambda self: set())
        return draw(model, inputs, **options)


@pytest.mark.parametrize("name", slow_after(MODELS, 2))
def test_sharing_does_not_change_the_draws(name, monkeypatch):
    make_model, inputs, rows = MODELS[name]
    record, options = RecordRows(), {"num_samples": 5, "seed": 1, "batch_size": 3, "max_rows": 7}
    model = make_model(record)
    model(inputs)
    sampler = Sampler(model)
    sampler(inputs, **options)
    record.rows.clear()
    shared = sampler(inputs, **options)
    assert sorted(record.rows) == sorted(rows)
    expected = unshared_draws(model, inputs, monkeypatch, **options)
    keras.tree.map_structure(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), shared, expected)
    drawn = keras.tree.flatten(shared)[0]
    assert len(np.unique(drawn.reshape(5, -1), axis=0)) == 5


class AlwaysRandom(layers.Layer):
    """Samples in every call, from a seed generator or with a TensorFlow operation in a loop."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.seed_generator = kind, keras.random.SeedGenerator(1)

    def call(self, x):
        if self.kind == "generator":
            return x + keras.random.normal(ops.shape(x), seed=self.seed_generator)
        return tf.while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, x + tf.random.normal(tf.shape(x))), (0, x))[1]

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, x.dtype)


@pytest.mark.parametrize("kind", ["generator", "loop"])
def test_a_layer_that_always_draws_is_not_shared(kind):
    inputs = keras.Input((None, D))
    x = AlwaysRandom(kind)(inputs)
    model = keras.Model(inputs, [x, GaussianLatent(2)(x)])
    for max_rows in (256, 1):
        for outputs in draw(model, X, 5, seed=1, max_rows=max_rows):
            assert len(np.unique(outputs.reshape(5, -1), axis=0)) == 5


def test_dropout_is_not_shared(monkeypatch):
    records = [RecordRows() for _ in range(3)]
    model = keras.Sequential([records[0], layers.Dropout(0.5), records[1], GaussianLatent(2), records[2]])
    model(X)
    options, sampler = {"num_samples": 5, "seed": 1}, Sampler(model, dropout=True)
    sampler(X, **options)
    for record in records:
        record.rows.clear()
    draws = sampler(X, **options)
    assert [record.rows for record in records] == [[5], [25], [25]]
    np.testing.assert_allclose(
        draws, unshared_draws(model, X, monkeypatch, dropout=True, **options), rtol=1e-5, atol=1e-6
    )


def test_a_row_index_is_not_shared():
    """A row index depends on the size of the batch, which grows if draws are computed together, so it is not shared."""

    class Numbers(layers.Layer):
        def call(self, x):
            return tf.range(tf.shape(x)[0]) + 0 * tf.cast(x[:, 0, 0], tf.int32)

    class Gathers(layers.Layer):
        def call(self, x, numbers):
            return tf.gather(x, numbers)

    inputs = keras.Input((None, D))
    drawn = GaussianLatent(2)(inputs)
    model = keras.Model(inputs, [drawn, Gathers()(drawn, Numbers()(inputs))])
    drawn, gathered = draw(model, X, 4, seed=1)
    np.testing.assert_array_equal(drawn, gathered)
