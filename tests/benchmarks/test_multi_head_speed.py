"""Speed of MultiHeadAttention relative to the Keras layer. Prints tables and asserts no time."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.paired import interleave, median_interval, report
from keras_vattn import MultiHeadAttention

BATCH = 32
# Number of heads, width of a head, number of steps.
SIZES = [(8, 64, 128), (4, 32, 64)]
ROWS = {
    "softmax": {},
    "weibull": {"alignment": "weibull"},
    # The KL is a mean over entries, so that its gradient leaves the weights finite.
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
