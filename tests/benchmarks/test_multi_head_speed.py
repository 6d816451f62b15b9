"""Speed of MultiHeadAttention over the layer of Keras. Prints tables and asserts no time."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from benchmarks.paired import interleave, median_interval, report

from keras_vattn import MultiHeadAttention

BATCH, STEPS, HEADS, WIDTH = 32, 128, 8, 64
# Heads, their width, and steps.
SIZES = [(HEADS, WIDTH, STEPS), (4, 32, 64)]
ROWS = {
    "softmax": {},
    "weibull": {"alignment": "weibull"},
    # The KL per entry, so that its gradient leaves the weights finite.
    "weibull_contextual": {"alignment": "weibull", "prior": "contextual", "kl_reduction": "mean"},
}
ALIGNMENTS = {
    "softmax": {},
    "weibull": {"alignment": "weibull", "prior": "fixed", "kl_reduction": "mean"},
    "dirichlet, no KL": {"alignment": "dirichlet"},
    "dirichlet": {"alignment": "dirichlet", "prior": "fixed", "kl_reduction": "mean"},
    "dirichlet_contextual": {"alignment": "dirichlet", "prior": "contextual", "kl_reduction": "mean"},
}


def training_step(layer, jit, batch=BATCH, steps=STEPS):
    width = layer.num_heads * layer.key_dim
    inputs = keras.Input((steps, width))
    model = keras.Model(inputs, layer(inputs, inputs))
    model.compile(keras.optimizers.SGD(1e-3), "mse", jit_compile=jit)
    x = tf.constant(np.random.default_rng(0).normal(size=(batch, steps, width)), tf.float32)
    return lambda: model.train_on_batch(x, x)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("heads", "width", "steps"), SIZES)
def test_training_step_over_keras(heads, width, steps, jit):
    layers = {row: MultiHeadAttention(heads, width, **options) for row, options in ROWS.items()}
    layers = {"keras": keras.layers.MultiHeadAttention(heads, width), **layers}
    seconds = interleave({row: training_step(layer, jit, steps=steps) for row, layer in layers.items()}, num_rounds=30)
    report(
        f"training step multi head {'jit' if jit else 'graph'}: batch {BATCH}, T {steps}, {heads} heads of {width}",
        [(row, median_interval(1e3 * seconds[row]), "ms") for row in layers]
        + [(f"{row} / keras", median_interval(seconds[row] / seconds["keras"]), "ratio") for row in ROWS],
    )


@pytest.mark.parametrize("jit", [False, True])
def test_dirichlet_over_softmax(jit):
    steps = {
        row: training_step(MultiHeadAttention(HEADS, WIDTH, **options), jit, batch=16, steps=64)
        for row, options in ALIGNMENTS.items()
    }
    seconds = interleave(steps, num_rounds=30)
    report(
        f"training step dirichlet {'jit' if jit else 'graph'}: batch 16, T 64, 8 heads of 64",
        [(row, median_interval(1e3 * seconds[row]), "ms") for row in ALIGNMENTS]
        + [
            (f"{row} / softmax", median_interval(seconds[row] / seconds["softmax"]), "ratio")
            for row in list(ALIGNMENTS)[1:]
        ],
    )
