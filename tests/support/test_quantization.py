"""Tests the files of quantised models whose layers contain dense layers."""

import gc

import keras
import numpy as np
import pytest

import keras_vattn


@keras.saving.register_keras_serializable(package="tests")
class ProjectedKeys(keras_vattn.Score):
    """A custom score with a dense layer inside."""

    def build(self, query_shape, key_shape):
        self.dense = keras.layers.Dense(query_shape[-1], dtype=self.dtype_policy)
        self.dense.build(key_shape)

    def project_keys(self, key):
        return self.dense(key)

    def score(self, query, projected_keys):
        return keras.ops.einsum("btd,bsd->bts", query, projected_keys)


@keras.saving.register_keras_serializable(package="tests")
class Decoder(keras_vattn.recurrent.RecurrentDecoder):
    """A custom decoder with a dense layer inside."""

    gives = ("hidden",)

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.cell, self.dense = keras_vattn.GRUCell(3), keras.layers.Dense(2)

    def build(self, inputs_shape, memory_shape=None):
        self.dense.build((None, 3))
        self.cell.build(inputs_shape, (None, 2))

    def parts(self):
        project = lambda tensors, state: self.dense(state["cells"][0])  # noqa: E731
        return [keras_vattn.recurrent.CellsPart([self.cell], context=project)]


def all_layers(inputs):
    attended = keras_vattn.Attention(ProjectedKeys(), alignment="weibull")(heads(inputs), inputs)
    return Decoder()(attended)["hidden"]


def heads(inputs):
    return keras_vattn.MultiHeadAttention(2, 4, alignment="weibull", prior="contextual")(inputs, inputs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method:UserWarning")
@pytest.mark.parametrize(("mode", "layers", "count"), [("int8", all_layers, 6), ("int4", heads, 4)])
def test_files(mode, layers, count, monkeypatch, tmp_path):
    monkeypatch.setattr(gc, "collect", lambda: 0)  # Keras collects garbage after each weight.

    def quantized_model():
        model = keras.Model(inputs, layers(inputs))
        model.quantize(mode, config=config)
        return model

    inputs = keras.Input((3, 4))
    config = keras.quantizers.Int4QuantizationConfig(block_size=2) if mode == "int4" else None
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    model, again = quantized_model(), quantized_model()
    assert sum(getattr(layer, "quantization_mode", None) == mode for layer in model._flatten_layers()) == count
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    again.load_weights(tmp_path / "model.weights.h5")
    for copy in (loaded, again):
        assert [x.dtype for x in copy.weights] == [x.dtype for x in model.weights]
        np.testing.assert_array_equal(copy(x), model(x))
