"""Tests the argument `cell` of a decoder, and custom cells that select the gates of the context."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from scipy.special import expit

import keras_vattn
from keras_vattn import Attention, AttentionDecoder, GRUCell, LSTMCell, RecurrentCell
from keras_vattn.recurrent import CELLS

GENERATOR = np.random.default_rng(7)
UNITS = 6
INPUTS = GENERATOR.normal(size=(3, 4, 4)).astype("float32")
MEMORY = GENERATOR.normal(size=(3, 5, 5)).astype("float32")


@keras.saving.register_keras_serializable(package="tests")
class CoupledCell(RecurrentCell):
    """One gate controls both forgetting and writing. Only the candidate receives the context."""

    num_states, num_gates, context_gates = 2, 3, slice(2, 3)

    def step(self, projected, context, states, kernels):
        hidden, cell = states
        i, o, candidate = self.gates(projected, context, hidden, kernels)
        cell = (1.0 - ops.sigmoid(i)) * cell + ops.sigmoid(i) * ops.tanh(candidate)
        hidden = ops.sigmoid(o) * ops.tanh(cell)
        return hidden, [hidden, cell]


def decoder_of(cell, **options):
    return AttentionDecoder(UNITS, Attention("additive"), cell=cell, query="previous", **options)


def test_the_cell_of_att2in():
    """Recomputes the cell in NumPy from the returned contexts, which enter only the two halves of the candidate."""
    decoder = decoder_of("max_out_lstm")
    decoded = decoder(INPUTS, MEMORY)
    cell = decoder.cells[0]
    assert cell.context_kernel.shape == (5, 2 * UNITS)
    h, c = np.zeros((3, UNITS)), np.zeros((3, UNITS))
    for t in range(4):
        gates = INPUTS[:, t] @ cell.kernel.numpy() + h @ cell.recurrent_kernel.numpy() + cell.bias.numpy()
        i, f, o, first_half, second_half = np.split(gates, 5, axis=-1)
        first_context, second_context = np.split(
            decoded["context"][:, t].numpy() @ cell.context_kernel.numpy(), 2, axis=-1
        )
        c = expit(f) * c + expit(i) * np.maximum(first_half + first_context, second_half + second_context)
        h = expit(o) * np.tanh(c)
        np.testing.assert_allclose(decoded["hidden"][:, t], h, atol=1e-5)


@pytest.mark.parametrize("gates", [slice(None), slice(0, 1), slice(1, 2), slice(1, 3)])
def test_the_gates_that_a_context_enters(gates):
    class Cell(RecurrentCell):
        num_gates, context_gates = 3, gates

        def step(self, projected, context, states, kernels):
            first, second, third = self.gates(projected, context, states[0], kernels)
            return first + 10.0 * second + 100.0 * third, states

    cell = Cell(2)
    inputs, context = tf.zeros((3, 4)), tf.constant(GENERATOR.normal(size=(3, 5)), tf.float32)
    output, _ = cell(inputs, context=context)
    gate_contexts = np.split(context @ cell.context_kernel, len(range(3)[gates]), axis=-1)
    expected = sum(10.0**gate * gate_context for gate, gate_context in zip(range(3)[gates], gate_contexts, strict=True))
    np.testing.assert_allclose(output, expected, rtol=1e-5)


@pytest.mark.parametrize("base", [LSTMCell, GRUCell])
def test_a_context_that_enters_one_gate_of_a_named_cell(base):
    """A narrow slice of context gates acts like a full context kernel that is 0 elsewhere."""

    class OneGate(base):
        context_gates = slice(2, 3)

    context = tf.constant(GENERATOR.normal(size=(3, 5)), tf.float32)
    narrow, full = OneGate(UNITS), base(UNITS)
    states = [tf.constant(GENERATOR.normal(size=(3, UNITS)), tf.float32) for _ in range(base.num_states)]
    for cell in (narrow, full):
        cell.build((None, 4), (None, 5))
    assert narrow.context_kernel.shape == (5, UNITS)
    kernel, context_kernel, *remaining = narrow.get_weights()
    padded = np.zeros((5, base.num_gates * UNITS), "float32")
    padded[:, 2 * UNITS : 3 * UNITS] = context_kernel
    full.set_weights([kernel, padded, *remaining])
    results = [cell(INPUTS[:, 0], context=context, states=states) for cell in (narrow, full)]
    for result, expected in zip(*(keras.tree.flatten(x) for x in results), strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-6)


def test_the_initializers_of_the_decoder_are_those_of_a_named_cell():
    zeros = {"kernel_initializer": "zeros", "recurrent_initializer": "zeros", "bias_initializer": "zeros"}
    for cell in ("lstm", LSTMCell):
        decoder = decoder_of(cell, **zeros)
        decoder.build(INPUTS.shape, MEMORY.shape)
        bias = decoder.cells[0].bias.numpy().reshape(4, -1)
        assert not any(np.any(x) for x in decoder.cells[0].weights if x.name in ("kernel", "recurrent_kernel"))
        np.testing.assert_array_equal(bias, np.arange(4)[:, None] == 1 + np.zeros_like(bias))
    decoder = decoder_of(LSTMCell(UNITS, kernel_initializer="ones"), **zeros)
    decoder.build(INPUTS.shape, MEMORY.shape)
    assert np.all(decoder.cells[0].kernel.numpy() == 1.0)


@pytest.mark.parametrize("cell_class", [*CELLS.values(), CoupledCell])
def test_the_initial_biases(cell_class):
    """Every bias of every layer is initialized independently, except the LSTM's forget gate, which starts at 1."""
    default, drawn = cell_class(UNITS), cell_class(UNITS, bias_initializer=keras.initializers.RandomUniform(2.0, 3.0))
    for cell in (default, drawn):
        cell.build(INPUTS[:, 0].shape)
    expected = np.zeros((default.num_gates, UNITS))
    expected[1] = 1.0 if cell_class is LSTMCell else 0.0
    np.testing.assert_array_equal(default.bias, expected.ravel())
    decoder = decoder_of(cell_class, num_layers=2, bias_initializer=keras.initializers.RandomUniform(2.0, 3.0))
    decoder.build(INPUTS.shape, MEMORY.shape)
    biases = [weight.numpy() for cell in (drawn, *decoder.cells) for weight in cell.weights if len(weight.shape) == 1]
    assert len(biases) == (6 if cell_class is GRUCell else 3)
    if cell_class is LSTMCell:
        forget = [bias[UNITS : 2 * UNITS] for bias in biases]
        np.testing.assert_array_equal(forget, 1.0)
        biases = [np.delete(bias, np.s_[UNITS : 2 * UNITS]) for bias in biases]
    assert all(2.0 <= bias.min() < bias.max() <= 3.0 for bias in biases)
    assert len({bias.tobytes() for bias in biases}) == len(biases)
    restored = json.loads(json.dumps(decoder.get_config()))
    for copy in (AttentionDecoder.from_config(restored), decoder.cells[0].from_config(restored["cell"]["config"])):
        assert copy.bias_initializer.maxval == 3.0


def test_a_decoder_with_a_custom_cell_can_be_saved(tmp_path):
    inputs, memory = keras.Input((None, 4)), keras.Input((None, 5))
    cell = CoupledCell(UNITS, kernel_initializer="he_normal")
    decoded = decoder_of(cell, num_layers=2)(inputs, memory, return_state=True)
    model = keras.Model([inputs, memory], [decoded["hidden"], *decoded["state"]])
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    for one, two in zip(copy([INPUTS, MEMORY]), model([INPUTS, MEMORY]), strict=True):
        np.testing.assert_array_equal(one, two)


def test_errors():
    names = ", ".join(f'"{name}"' for name in CELLS)
    with pytest.raises(ValueError, match=rf'Expected one of {names}. Received: cell="rnn"'):
        AttentionDecoder(UNITS, cell="rnn")
    with pytest.raises(ValueError, match="Received: cell=<Dense"):
        AttentionDecoder(UNITS, cell=keras.layers.Dense(2))
    with pytest.raises(ValueError, match=r"Received: cell.units=4, units=6"):
        AttentionDecoder(UNITS, cell=LSTMCell(4))
    with pytest.raises(ValueError, match=r"Received: .*cell.compute_dtype=bfloat16, dtype=float32"):
        AttentionDecoder(UNITS, cell=LSTMCell(UNITS, dtype="mixed_bfloat16"))
    with pytest.raises(NotImplementedError, match="RecurrentCell does not implement `step`"):
        RecurrentCell(3)(INPUTS[:, 0])


@keras.saving.register_keras_serializable(package="tests")
class Both(keras_vattn.recurrent.Feeding):
    """Feeds the sampled and the expected context."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def context(self, attended, attention, memory):
        expected = keras_vattn.recurrent.ExpectedFeeding().context(attended, attention, memory)
        return self.scale * ops.concatenate([attended["context"], expected], axis=-1)

    def width(self, context_width):
        return 2 * context_width

    def get_config(self):
        return {"scale": self.scale}


@pytest.mark.parametrize("query", ["current", "previous"])
def test_a_custom_feeding(query):
    decoder = AttentionDecoder(UNITS, Attention("additive"), query=query, feeding=Both(0.5))
    single = AttentionDecoder(UNITS, Attention("additive"), query=query)
    decoded = decoder(INPUTS, MEMORY)
    single.build(INPUTS.shape, MEMORY.shape)
    assert decoder.cells[0].context_kernel.shape == (10, 4 * UNITS)
    single.attention.set_weights(decoder.attention.get_weights())
    kernel, context_kernel, *remaining = decoder.cells[0].get_weights()
    # Without samples both contexts are equal.
    single.cells[0].set_weights([kernel, 0.5 * (context_kernel[:5] + context_kernel[5:]), *remaining])
    np.testing.assert_allclose(single(INPUTS, MEMORY)["hidden"], decoded["hidden"], atol=1e-5)
    restored = json.loads(json.dumps(decoder.get_config()))
    assert AttentionDecoder.from_config(restored).feeding.scale == 0.5
