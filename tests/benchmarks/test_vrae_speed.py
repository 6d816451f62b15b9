"""Speed of the variational recurrent autoencoder at the paper's size: what the stochastic decoder costs over a plain
LSTM one, and how a step grows with the length of sentences. Prints tables, asserts no time."""

import itertools
import types

import numpy as np
import tensorflow as tf
from application_cases import changed
from benchmarks.paired import interleave, median_interval, report

import keras_vattn
from applications.common.optimizers import optimizer_of
from applications.common.option_values import with_values
from applications.text.text import END, START
from applications.vrae import model
from applications.vrae.options import PROGRAM

VOCABULARY, WORDS, LENGTHS = 10_000, 21, (16, 32, 64, 128)
CODEC = types.SimpleNamespace(vocabulary_size=VOCABULARY)


def training_steps(name, lengths=(WORDS,)):
    """Return functions that make a training step of a model on sentences of so many words, one for each length."""
    preset = with_values(PROGRAM.default, PROGRAM.preset_values("paper"))
    training = model.build(changed(preset, model=name), CODEC).training
    training.compile(optimizer_of(preset.fit, 1000, 10_000), keras_vattn.NegativeBound(ignore_class=0))
    generator, batch_size = np.random.default_rng(0), preset.fit.batch_size

    def step(num_words):
        source = generator.integers(4, VOCABULARY, size=(batch_size, num_words)).astype("int32")
        target = np.pad(source, [(0, 0), (0, 1)], constant_values=END)
        inputs = {"source": source, "target_input": np.insert(source, 0, START, axis=1), "target": target}
        inputs = {key: tf.constant(x, tf.int32) for key, x in inputs.items()}
        return lambda: training.train_on_batch(inputs, inputs["target"])

    return {length: step(length) for length in lengths}


def test_step_over_a_plain_decoder():
    steps = {name: training_steps(name)[WORDS] for name in ("lstm", "vrae", "vrae_sa", "vrae_sa_aux")}
    seconds = interleave(steps, num_rounds=20, num_warm_up=3)
    rows = [(name, median_interval(1e3 * x), "ms") for name, x in seconds.items()]
    for name in ("vrae_sa", "vrae_sa_aux"):
        rows.append((f"{name} / vrae", median_interval(seconds[name] / seconds["vrae"]), "ratio"))
    report("vrae step: paper preset, B 32, 21 words, 10,000 in the vocabulary", rows)


def test_decoder_alone():
    """Forward and backward of the layers alone, without words, encoder and optimizer."""
    inputs = tf.random.normal((32, WORDS + 1, 544), seed=0)
    memory = tf.random.normal((32, WORDS, 256), seed=1)
    plain = keras_vattn.AttentionDecoder(256)
    latent = keras_vattn.GaussianLatent(32, initial_log_scale=-3.0)
    attention = keras_vattn.DeterministicAttention("additive")
    decoder = keras_vattn.StochasticDecoder(256, latent, attention, keras_vattn.PredictedContext(256))

    def step(layer, *arguments):
        @tf.function
        def gradients():
            with tf.GradientTape() as tape:
                value = tf.reduce_sum(layer(*arguments, training=True)["hidden"] ** 2) + sum(layer.losses)
            return tape.gradient(value, [weight.value for weight in layer.trainable_weights])

        layer(*arguments)
        return gradients

    seconds = interleave({"plain": step(plain, inputs), "stochastic": step(decoder, inputs, memory)}, 20, 3)
    rows = [(name, median_interval(1e3 * x), "ms") for name, x in seconds.items()]
    rows.append(("stochastic / plain", median_interval(seconds["stochastic"] / seconds["plain"]), "ratio"))
    report("vrae decoder: alone, forward and backward, B 32, 22 steps, 256 units", rows)


def test_growth_with_length():
    """Beside the same of a plain decoder, which has the words' softmax, too, and nothing that is quadratic."""
    steps = {
        (name, length): step
        for name in ("vrae", "vrae_sa_aux")
        for length, step in training_steps(name, LENGTHS).items()
    }
    seconds = interleave(steps, num_rounds=8, num_warm_up=2)
    rows = [(f"{name}, {length} words", median_interval(1e3 * x), "ms") for (name, length), x in seconds.items()]
    for name in ("vrae", "vrae_sa_aux"):
        for short, long in [*itertools.pairwise(LENGTHS), (LENGTHS[0], LENGTHS[-1])]:
            ratio = median_interval(seconds[name, long] / seconds[name, short])
            rows.append((f"{name}, {long} / {short} words", ratio, f"ratio, linear is {long // short}"))
    report("vrae growth: with length, paper preset, B 32", rows)
