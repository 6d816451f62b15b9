"""The emission of a latent alignment at the sizes of Deng et al. 2018, one training step of it.

Run as a program it prints the peak memory of a step in a process of its own:
`python -m benchmarks.latent_emission ROW`.
"""

import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

from keras_vattn import CategoricalAttention, LatentLogLikelihood, LatentObjective, TokenLogLikelihood

BATCH, STEPS, SOURCE, VOCABULARY, WIDTH = 6, 25, 25, 14_000, 768
ROWS = {"soft": "soft", "sample": "elbo/sample", "enumerate": "elbo/enumerate"}


def arrays():
    generator = np.random.default_rng(0)
    query, value = (generator.normal(size=(BATCH, length, WIDTH)) for length in (STEPS, SOURCE))
    posterior_logits = generator.normal(size=(BATCH, STEPS, SOURCE))
    targets = generator.integers(0, VOCABULARY, size=(BATCH, STEPS))
    return [tf.constant(x, tf.float32) for x in (query, value, posterior_logits)], tf.constant(targets)


def training_step(row, jit=False):
    """Value, and the gradient by the inputs and all weights."""
    objective = LatentObjective(ROWS[row])
    attention, output = CategoricalAttention("bilinear", objective), TokenLogLikelihood(VOCABULARY)
    query_layer, bound_layer = keras.layers.Dense(WIDTH), LatentLogLikelihood(objective)
    inputs, targets = arrays()
    layers = (attention, query_layer, output, bound_layer)

    def loss(inputs):
        query, value, posterior_logits = inputs
        options = {} if row == "soft" else {"posterior_logits": posterior_logits}
        latent = attention(query, value, training=True, **options)
        hidden = tf.tanh(query_layer(query)[:, :, None] + latent["candidates"])
        log_likelihood = output(hidden, targets)
        bound = bound_layer(log_likelihood, latent["log_prior"], latent.get("log_posterior"), training=True)
        return sum(attention.losses) - tf.reduce_sum(bound) / BATCH

    @tf.function(jit_compile=jit)
    def step(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            value = loss(inputs)
        variables = [weight for layer in layers for weight in layer.trainable_variables]
        return value, tape.gradient(value, [*inputs, *variables])

    loss(inputs)
    return lambda: step(inputs)[0].numpy()


def matrix_products(num_forward, num_backward):
    """The products with the output matrix alone: forward, and the two of the backward pass, of so many candidates."""
    generator = np.random.default_rng(0)
    kernel = tf.constant(generator.normal(size=(WIDTH, VOCABULARY)), tf.float32)
    hidden = tf.constant(generator.normal(size=(BATCH * STEPS, WIDTH)), tf.float32)

    @tf.function
    def products():
        total = tf.zeros(())
        for index in range(num_forward):
            logits = (hidden + float(index)) @ kernel
            total += logits[0, 0]
            if index < num_backward:
                total += tf.matmul(logits, kernel, transpose_b=True)[0, 0]
                total += tf.matmul(hidden, logits, transpose_a=True)[0, 0]
        return total

    return lambda: products().numpy()


def resident_memory(field):
    """MiB of this process as Linux counts it: `VmRSS` now, `VmHWM` at most. The peak of `getrusage` is, after a fork,
    that of the parent."""
    line = next(line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    run = training_step(sys.argv[1])
    before = resident_memory("VmRSS")
    run()
    print(resident_memory("VmHWM"), before)
