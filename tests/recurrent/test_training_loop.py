"""Tests the training loop inside Keras layers: scopes, dtypes, phases and models."""

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import keras_vattn
from keras_vattn import Attention, AttentionDecoder, RecurrentCell

GENERATOR = np.random.default_rng(0)
INPUTS = GENERATOR.normal(size=(3, 4, 5)).astype("float32")
MEMORY = GENERATOR.normal(size=(3, 6, 7)).astype("float32")
UNITS = 4


class ScaledCell(RecurrentCell):
    """A cell with an elementwise weight in the compute dtype."""

    def build(self, inputs_shape, context_shape=None):
        super().build(inputs_shape, context_shape)
        self.scale = self.add_weight(name="scale", shape=(self.units,), initializer="ones")

    def step(self, projected, context, states, kernels):
        (gate,) = self.gates(projected, context, states[0], kernels)
        hidden = ops.tanh(gate) * self.scale
        return hidden, [hidden]


@pytest.mark.parametrize("graph", [False, True])
def test_the_gradient_of_a_stateless_call(graph):
    """The gradient of `stateless_call` is with respect to the passed values, not to the variables."""
    decoder = AttentionDecoder(UNITS, Attention("additive"), cell=ScaledCell)
    decoder(INPUTS, MEMORY)
    values = [tf.convert_to_tensor(3.0 * weight.value) for weight in decoder.trainable_variables]
    non_trainable = [weight.value for weight in decoder.non_trainable_variables]

    def gradient(values):
        with tf.GradientTape() as tape:
            tape.watch(values)
            outputs, _ = decoder.stateless_call(values, non_trainable, INPUTS, MEMORY, training=True)
            loss = tf.reduce_sum(outputs["hidden"] ** 2)
        return tape.gradient(loss, values)

    gradients = (tf.function(gradient, autograph=False) if graph else gradient)(values)
    for weight, value in zip(decoder.trainable_variables, values, strict=True):
        weight.assign(value)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(decoder(INPUTS, MEMORY, training=True)["hidden"] ** 2)
    expected = tape.gradient(loss, [weight.value for weight in decoder.trainable_variables])
    for actual, reference in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(actual, reference, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [lambda: keras_vattn.fast.LSTM(4), lambda: AttentionDecoder(4, Attention("additive"))])
def test_unreferenced_models_are_freed(make):
    """A model without references is freed. A plain `tf.custom_gradient` would keep the weights of the model forever."""
    inputs, layer = keras.Input((4, 5)), make()
    outputs = layer(inputs, inputs)["hidden"] if isinstance(layer, AttentionDecoder) else layer(inputs)
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse")
    model.train_on_batch(INPUTS, np.zeros(model(INPUTS).shape))
    references = [weakref.ref(layer), weakref.ref(layer.trainable_variables[0])]
    del inputs, layer, outputs, model
    keras.backend.clear_session()
    gc.collect()
    assert [reference() for reference in references] == [None, None]


@pytest.mark.parametrize("jit_compile", [False, True])
def test_sequences_of_length_zero(jit_compile):
    """The static length is unknown and the actual length 0: outputs are empty, and loss and gradients are zero."""
    inputs, memory = keras.Input((None, 5)), keras.Input((None, 7))
    decoder = AttentionDecoder(UNITS, Attention("additive"))
    model = keras.Model([inputs, memory], decoder(inputs, memory, return_attention_scores=True))

    @tf.function(
        autograph=False,
        jit_compile=jit_compile,
        input_signature=[tf.TensorSpec((None, None, 5)), tf.TensorSpec((None, None, 7))],
    )
    def run(inputs, memory):
        with tf.GradientTape() as tape:
            outputs = model([inputs, memory], training=jit_compile)
            loss = tf.add_n([*map(tf.reduce_sum, outputs.values()), *model.losses])
        return (
            outputs,
            loss,
            tape.gradient(loss, [weight.value for weight in model.trainable_variables], unconnected_gradients="zero"),
        )

    outputs, loss, gradients = run(INPUTS[:, :0], MEMORY)
    widths = {"hidden": UNITS, "context": 7, "weights": 6}
    assert {name: tuple(x.shape) for name, x in outputs.items()} == {name: (3, 0, widths[name]) for name in outputs}
    assert float(loss) == 0.0
    for gradient in gradients:
        np.testing.assert_array_equal(gradient, np.zeros(gradient.shape))


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras_vattn.fast.LSTM(4),
        pytest.param(
            lambda: keras_vattn.MultiHeadAttention(2, 4, alignment="weibull", query_chunk_size=2),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_graphs_are_freed_while_their_layer_lives(make):
    layer = make()
    arguments = [tf.constant(INPUTS)] * (1 if isinstance(layer, keras.layers.LSTM) else 2)
    layer(*arguments)

    def num_graphs():
        function = tf.function(lambda *x: tf.gradients(layer(*x, training=True), x[0]), autograph=False)
        function(*arguments)
        del function
        gc.collect()
        return sum(isinstance(x, tf.Graph) for x in gc.get_objects())

    num_graphs()
    assert num_graphs() == num_graphs()
