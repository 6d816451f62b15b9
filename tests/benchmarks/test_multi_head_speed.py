"""Speed of MultiHeadAttention over the layer of Keras. Prints tables and asserts no time."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from benchmarks.paired import interleave, median_interval, report

from keras_vattn import MultiHeadAttention

BATCH, STEPS, HEADS, WIDTH = 32, 128, 8, 64
ROWS = {
    "keras": lambda: keras.layers.MultiHeadAttention(HEADS, WIDTH),
    "softmax": lambda: MultiHeadAttention(HEADS, WIDTH),
    "weibull": lambda: MultiHeadAttention(HEADS, WIDTH, alignment="weibull"),
    # The KL per entry, so that its gradient leaves the weights finite.
    "weibull_contextual": lambda: MultiHeadAttention(
        HEADS, WIDTH, alignment="weibull", prior="contextual", kl_reduction="mean"
    ),
}


def training_step(layer, jit):
    inputs = keras.Input((STEPS, HEADS * WIDTH))
    model = keras.Model(inputs, layer(inputs, inputs))
    model.compile(keras.optimizers.SGD(1e-3), "mse", jit_compile=jit)
    x = tf.constant(np.random.default_rng(0).normal(size=(BATCH, STEPS, HEADS * WIDTH)), tf.float32)
    return lambda: model.train_on_batch(x, x)


@pytest.mark.parametrize("jit", [False, True])
def test_training_step_over_keras(jit):
    seconds = interleave({row: training_step(make(), jit) for row, make in ROWS.items()}, num_rounds=30)
    report(
        f"training step multi head {'jit' if jit else 'graph'}: batch 32, T 128, 8 heads of 64",
        [(row, median_interval(1e3 * seconds[row]), "ms") for row in ROWS]
        + [(f"{row} / keras", median_interval(seconds[row] / seconds["keras"]), "ratio") for row in list(ROWS)[1:]],
    )
