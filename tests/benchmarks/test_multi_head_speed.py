"""Times training steps of MultiHeadAttention, relative to the layer of Keras. Prints tables, asserts nothing."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.paired import interleave, median_interval, report
from keras_vattn import MultiHeadAttention

BATCH = 32
# Tuples of the number of heads, the width of a head, and the length T of the sequences.
SIZES = [(8, 64, 128), (4, 32, 64)]
ROWS = {
    "softmax": {},
    "weibull": {"alignment": "weibull"},
    # Average the KL over the weights: the gradient of its sum would let the weights become infinite.
    "weibull_contextual": {"alignment": "weibull", "prior": "contextual", "kl_reduction": "mean"},
}


def training_step(layer, jit, steps):
    width = layer.num_heads * layer.key_dim
    inputs = keras.Input((steps, width))
    model = keras.Model(inputs, layer(inputs, inputs))
    model.compile(keras.optimizers.SGD(1e-3), "mse", jit_compile=jit)
    x = tf.constant(np.random.default_rng(0).normal(size=(BATCH, steps, width)), tf.float32)
    return lambda: model.train_on_batch(x, x)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("heads", "width", "steps"), SIZES)
def test_training_step_over_keras(heads, width, steps, jit):
    layers = {row: MultiHeadAttention(heads, width, **options) for row, options in ROWS.items()}
    layers = {"keras": keras.layers.MultiHeadAttention(heads, width), **layers}
    seconds = interleave({row: training_step(layer, jit, steps) for row, layer in layers.items()}, num_rounds=30)
    report(
        f"training step multi head {'jit' if jit else 'graph'}: batch {BATCH}, T {steps}, {heads} heads of {width}",
        [(row, median_interval(1e3 * seconds[row]), "ms") for row in layers]
        + [(f"{row} / keras", median_interval(seconds[row] / seconds["keras"]), "ratio") for row in ROWS],
    )
