"""Speed of the stochastic alignments over softmax. Prints tables and asserts no time."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from benchmarks.paired import interleave, median_interval, report

import keras_vattn
from keras_vattn import Attention, AttentionDecoder, BayesianAttention, ContextualPrior

ALIGNMENTS = ("softmax", "weibull", "lognormal", "gumbel_softmax", "dirichlet")
BATCH, STEPS, SOURCE, WIDTH = 32, 32, 64, 256
SEED = tf.constant([1, 2])


def gradient_step(layer, inputs, jit):
    """A training step without its update: value, and the gradient by weights and inputs."""

    def step(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            result = layer(*inputs, training=True)
            result = result["context"] if isinstance(result, dict) else result
            loss = tf.reduce_sum(tf.square(result)) + sum(layer.losses)
        return loss, tape.gradient(loss, [*layer.trainable_variables, *inputs])

    compiled = tf.function(step, jit_compile=jit)
    return lambda: compiled(inputs)[0].numpy()


def report_over_softmax(title, steps):
    seconds = interleave(steps, num_rounds=30)
    rows = [("softmax", median_interval(1e3 * seconds["softmax"]), "ms")]
    rows += [
        (f"{name} / softmax", median_interval(seconds[name] / seconds["softmax"]), "ratio")
        for name in seconds
        if name != "softmax"
    ]
    report(title, rows)


def arrays(*shapes):
    generator = np.random.default_rng(0)
    return [tf.constant(generator.normal(size=shape), tf.float32) for shape in shapes]


@pytest.mark.parametrize("prior", [None, "contextual"])
@pytest.mark.parametrize("jit", [False, True])
def test_attention(jit, prior):
    inputs = arrays((BATCH, STEPS, WIDTH), (BATCH, SOURCE, WIDTH))
    steps = {}
    for name in ALIGNMENTS:
        layer = Attention("bilinear", name, prior=None if name == "softmax" else prior)
        layer(*inputs)
        steps[name] = gradient_step(layer, inputs, jit)
    title = f"attention {'jit' if jit else 'graph'} prior {prior}: bilinear, B 32, T 32, S 64, D 256"
    report_over_softmax(title, steps)


@pytest.mark.parametrize("jit", [False, True])
def test_decoder(jit):
    """The decoder of the VED paper preset: batch 100, S 30, T 21, embeddings 300 and z 100, LSTM 100, memory 200."""
    inputs = arrays((100, 21, 400), (100, 30, 200))
    steps = {}
    for name in ("softmax", "weibull"):
        attention = BayesianAttention(score="bilinear") if name == "weibull" else Attention("bilinear")
        decoder = AttentionDecoder(100, attention)
        decoder(*inputs)
        steps[name] = gradient_step(decoder, inputs, jit)
    report_over_softmax(f"decoder {'jit' if jit else 'graph'}: batch 100, S 30, T 21, LSTM 100, memory 200", steps)


@pytest.mark.parametrize("jit", [False, True])
def test_decoder_and_output_layer(jit):
    """The same decoder below the preset's vocabulary of 40,000: the training step of a model."""
    inputs = arrays((100, 21, 400), (100, 30, 200))
    targets = tf.constant(np.random.default_rng(0).integers(0, 40_000, (100, 21)))
    steps = {}
    for name in ("softmax", "weibull"):
        attention = BayesianAttention(score="bilinear") if name == "weibull" else Attention("bilinear")
        query, memory = keras.Input((None, 400)), keras.Input((None, 200))
        decoded = AttentionDecoder(100, attention)(query, memory)
        joined = keras.layers.Concatenate()([decoded["hidden"], decoded["context"]])
        logits = keras.layers.Dense(40_000)(keras.layers.Dense(100, use_bias=False)(joined))
        model = keras.Model([query, memory], logits)
        model.compile("adam", keras_vattn.SequenceCrossentropy(), jit_compile=jit)
        steps[name] = lambda model=model: model.train_on_batch(inputs, targets)
    title = f"decoder and output {'jit' if jit else 'graph'}: batch 100, S 30, T 21, vocabulary 40,000"
    report_over_softmax(title, steps)


def test_contextual_prior_alone():
    """What of the step is the prior's network: the projected keys are read once per memory."""
    (key,) = arrays((BATCH, SOURCE, WIDTH))
    prior = ContextualPrior()
    prior.build(key.shape)
    attention = Attention("bilinear")
    inputs = arrays((BATCH, STEPS, WIDTH), (BATCH, SOURCE, WIDTH))
    attention(*inputs)
    network = tf.function(lambda key: tf.reduce_sum(prior.log_psi(key, keras_vattn.DenseKeys())))
    seconds = interleave(
        {"prior": lambda: network(key).numpy(), "softmax": gradient_step(attention, inputs, False)}, num_rounds=30
    )
    ratio = median_interval(seconds["prior"] / seconds["softmax"])
    report("contextual prior forward: over the softmax step", [("prior / step", ratio, "ratio")])


def test_noise_alone():
    """What of the step is the drawing of the noise, forward only: it has no backward pass."""
    inputs = arrays((BATCH, STEPS, WIDTH), (BATCH, SOURCE, WIDTH))
    attention = Attention("bilinear")
    attention(*inputs)
    steps = {"softmax": gradient_step(attention, inputs, False)}
    # The step also starts a function and reads a number back; so does each of these.
    for name in ("weibull", "lognormal", "gumbel_softmax"):
        alignment = keras_vattn.alignments.get(name)
        draw = tf.function(lambda seed, alignment=alignment: alignment.noise((BATCH, STEPS, SOURCE), seed))
        steps[f"noise of {name}"] = lambda draw=draw: tf.nest.map_structure(lambda x: x.numpy(), draw(SEED))
    report_over_softmax("noise alone, graph: over the softmax step", steps)
