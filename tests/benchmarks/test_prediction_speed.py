"""What a KL costs where nothing asks for it: `training=False` over `training=None`. Prints tables, asserts no time."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from benchmarks.paired import interleave, median_interval, report

from keras_vattn import MultiHeadAttention

ALIGNMENTS = ("weibull", "lognormal", "dirichlet", "gumbel_softmax")


def function_of(layer, x, training, jit):
    compiled = tf.function(lambda x: tf.reduce_sum(layer(x, x, training=training)), jit_compile=jit, autograph=False)
    return lambda: compiled(x).numpy()


@pytest.mark.parametrize("jit", [False, True])
def test_inference_over_a_plain_call(jit):
    x = tf.constant(np.random.default_rng(0).normal(size=(16, 64, 256)), tf.float32)
    rows = []
    for name in ALIGNMENTS:
        layer = MultiHeadAttention(8, 32, alignment=name, prior="contextual")
        layer(x, x)
        inputs = keras.Input((64, 256))
        model = keras.Model(inputs, layer(inputs, inputs))
        model.compile("sgd", "mse", jit_compile=jit)
        functions = {training: function_of(layer, x, training, jit) for training in (False, None)}
        # `predict` alone takes some milliseconds: a softmax model is the measure of it.
        functions["predict"] = lambda model=model: model.predict_on_batch(x)
        plain = keras.Model(inputs, MultiHeadAttention(8, 32)(inputs, inputs))
        plain.compile("sgd", "mse", jit_compile=jit)
        functions["softmax"] = lambda model=plain: model.predict_on_batch(x)
        seconds = interleave(functions)
        rows.append((f"{name} False / None", median_interval(seconds[False] / seconds[None]), "ratio"))
        rows.append((f"{name} predict / softmax", median_interval(seconds["predict"] / seconds["softmax"]), "ratio"))
    report(f"inference multi head {'jit' if jit else 'graph'}: B 16, T 64, 8 heads of 32, contextual prior", rows)
