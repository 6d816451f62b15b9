"""Products that crash a process where TensorFlow computes them wrongly; run as a program, which names each before it
starts.

TensorFlow 2.21 writes outside of the result of some products of rank 4, but not for a batch of one example: what a
batch gives is compared with what its examples give one by one.
"""

import numpy as np
import tensorflow as tf
from keras import layers, ops

import keras_vattn as kv

NUM_CALLS = 10


def normal(*shape):
    return tf.constant(np.random.default_rng(0).normal(size=shape), tf.float32)


def heads(num_heads=2, **options):
    return kv.MultiHeadAttention(num_heads, 4, **{"alignment": "weibull", **options})


def to_itself(layer, x):
    return layer(x, x)


def from_its_first(layer, x):
    return layer(x[:, :1], x)


def alone(layer, x):
    return layer(x)


def in_graphs(layer, x):
    edges = tf.constant([[0, 1], [1, 2], [2, 0]]) + 3 * tf.range(len(x))[:, None, None]
    return tf.reshape(layer(tf.reshape(x, (-1, 6)), tf.reshape(edges, (-1, 2))), (len(x), 3, -1))


OWN_PRIOR = {"prior": "contextual", "per_head_prior": True}
PLACES = {
    "one head with a prior of its own": (to_itself, heads(1, **OWN_PRIOR), (4, 5, 6)),
    "one head with a prior of its own, in chunks": (to_itself, heads(1, query_chunk_size=2, **OWN_PRIOR), (4, 5, 6)),
    "one head of softmax weights": (to_itself, heads(1, alignment="softmax"), (4, 5, 6)),
    "heads beside an axis of length one": (to_itself, heads(attention_axes=(2,), **OWN_PRIOR), (4, 1, 5, 6)),
    "a head over an axis of length one": (to_itself, heads(1, attention_axes=(1, 2), **OWN_PRIOR), (4, 1, 5, 6)),
    "attention of one query": (from_its_first, kv.Attention(alignment="weibull", prior="contextual"), (4, 5, 6)),
    "likelihood of one candidate": (alone, kv.TokenLogLikelihood(7), (4, 5, 1, 6)),
    "likelihood of one step": (alone, kv.TokenLogLikelihood(7), (4, 1, 5, 6)),
    "Dense of Keras": (alone, layers.Dense(3), (4, 1, 5, 6)),
    "EinsumDense of Keras": (alone, layers.EinsumDense("abcd,de->abce", (None, None, 3)), (4, 1, 5, 6)),
}
# Of the rank that a Jacobian adds. The softmax of several heads is Keras's layer, whose projections have rank 3.
JACOBIANS = {
    "MultiHeadAttention": heads(prior="contextual"),
    "MultiHeadAttention with a prior a head": heads(1, **OWN_PRIOR),
    "MultiHeadAttention in chunks": heads(query_chunk_size=2),
    "Attention": kv.Attention(prior="contextual", alignment="weibull"),
    "Attention, additive": kv.Attention(score="additive"),
    "Attention, bilinear": kv.Attention(score="bilinear", context="gaussian"),
    "Attention, hard": kv.Attention(alignment="hard"),
    "GraphAttention": kv.GraphAttention(3, 1, alignment="weibull", **OWN_PRIOR),
    "AttentionDecoder": kv.AttentionDecoder(6, kv.Attention(alignment="weibull")),
}


def check_products(function, layer, shape):
    def value_and_gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(layer, x)
            # A KL is a mean over the examples.
            total = ops.sum(ops.square(value)) + sum(layer.losses) * ops.cast(ops.shape(x)[0], "float32")
        return value, tape.gradient(total, x)

    x = normal(*shape)
    rows = [value_and_gradient(x[i : i + 1]) for i in range(shape[0])]
    expected = [np.concatenate(parts) for parts in zip(*rows)]
    spec = tf.TensorSpec([None] * (len(shape) - 1) + [shape[-1]])
    for call in (value_and_gradient, tf.function(value_and_gradient, input_signature=[spec], autograph=False)):
        for _ in range(NUM_CALLS):
            for result, reference in zip(call(x), expected):
                np.testing.assert_allclose(result, reference, rtol=1e-4, atol=1e-5)


def check_jacobian(layer, batch):
    x = normal(batch, 3, 6)

    def outputs():
        result = (in_graphs if isinstance(layer, kv.GraphAttention) else to_itself)(layer, x)
        return tf.reshape((result["context"] if isinstance(result, dict) else result)[:, :2, :3], (batch, 6))

    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        values = outputs()
        columns = [values[:, column] for column in range(6)]
    expected = np.stack([tape.gradient(column, x) for column in columns], axis=1)
    np.testing.assert_allclose(tape.batch_jacobian(values, x), expected, rtol=1e-4, atol=1e-6)


if __name__ == "__main__":
    for name, place in PLACES.items():
        print(name, flush=True)
        check_products(*place)
    for name, layer in JACOBIANS.items():
        for batch in (1, 3):
            print(f"Jacobian of {batch} examples: {name}", flush=True)
            check_jacobian(layer, batch)
    print("complete", flush=True)
