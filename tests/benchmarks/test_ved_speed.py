"""Speed of the variational encoder-decoder at the paper's sizes. Prints tables and asserts no time."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from application_cases import codec_of_size
from benchmarks.paired import interleave, median_interval, report
from benchmarks.paper import compiled, paper_options

import keras_vattn
from applications.common.application import Run
from applications.text.text import PAD, TextEncoder, Tokenizer, Vocabulary
from applications.ved import model
from applications.ved.data import Codec
from applications.ved.options import PROGRAM
from applications.ved.serve import Generator


def build(options):
    return model.build(options, codec_of_size(options.text.source_vocabulary_size, options.text.target_vocabulary_size))


def batch(options, source_length, target_length):
    generator, text, rows = np.random.default_rng(0), options.text, options.fit.batch_size
    source = generator.integers(4, text.source_vocabulary_size, (rows, source_length), dtype=np.int32)
    target = generator.integers(4, text.target_vocabulary_size, (rows, target_length), dtype=np.int32)
    return {"source": tf.constant(source), "target_input": tf.constant(target)}, tf.constant(target)


def training_step(options, source_length=30, target_length=21):
    models = compiled(options, build(options), loss=keras_vattn.SequenceCrossentropy(ignore_class=PAD)).models
    inputs, targets = batch(options, source_length, target_length)
    return lambda: models.training.train_on_batch(inputs, targets)


@pytest.mark.parametrize("jit", [False, True])
def test_variational_over_deterministic_training_step(jit):
    models = ("ved_vattn_mean", "ved_dattn")
    steps = {name: training_step(paper_options(PROGRAM, model=name, jit="on" if jit else "off")) for name in models}
    seconds = interleave(steps, num_rounds=30)
    ratios = seconds["ved_vattn_mean"] / seconds["ved_dattn"]
    report(
        f"training step paper preset {'jit' if jit else 'graph'}: batch 100, S 30, T 21, vocabulary 40,000",
        [(name, median_interval(1e3 * seconds[name]), "ms") for name in models]
        + [("ved_vattn_mean / ved_dattn", median_interval(ratios), "ratio")],
    )


def test_step_time_over_source_length():
    lengths = (16, 32, 64, 128)
    options = paper_options(PROGRAM, source_vocabulary_size=4000, target_vocabulary_size=4000)
    seconds = interleave({length: training_step(options, length) for length in lengths}, num_rounds=30)
    rows = [(f"S = {length}", median_interval(1e3 * seconds[length]), "ms") for length in lengths]
    rows += [
        (f"S {long} over S {short} (linear: 2)", median_interval(seconds[long] / seconds[short]), "ratio")
        for short, long in itertools.pairwise(lengths)
    ]
    report("step time over source length: ved_vattn_mean, batch 100, T 21, vocabulary 4,000", rows)


def test_greedy_decoding_throughput():
    options = paper_options(PROGRAM, model="ved_vattn_mean")
    vocabulary = Vocabulary([f"w{index}" for index in range(options.text.target_vocabulary_size - 4)])
    encoder = TextEncoder(Tokenizer(), vocabulary)
    generator = Generator(Run(None, options, {}, Codec(encoder, encoder), build(options)))
    inputs, _ = batch(options, 30, 21)
    compiled = tf.function(lambda source: generator.greedy(source)["ids"], jit_compile=True)
    seconds = interleave(
        {
            "graph": lambda: generator.greedy(inputs["source"])["ids"].numpy(),
            "jit": lambda: compiled(inputs["source"]).numpy(),
        },
        num_rounds=30,
    )
    rows = [(name, median_interval(options.fit.batch_size / seconds[name]), "sentences/s") for name in seconds]
    rows.append(("jit / graph, time", median_interval(seconds["jit"] / seconds["graph"]), "ratio"))
    report("greedy decoding throughput: batch 100, S 30, at most 21 words, vocabulary 40,000", rows)


def test_where_the_time_of_a_step_goes():
    options = paper_options(PROGRAM, model="ved_vattn_mean")
    models = compiled(options, build(options), loss=keras_vattn.SequenceCrossentropy(ignore_class=PAD)).models
    inputs, targets = batch(options, 30, 21)
    hidden = tf.random.normal((options.fit.batch_size, 21, options.network.units))
    context = tf.random.normal((options.fit.batch_size, 21, 2 * options.network.encoder_units))
    loss = keras_vattn.SequenceCrossentropy(ignore_class=0)

    def gradient_of(function):
        def run():
            with tf.GradientTape() as tape:
                result = function()
            return tape.gradient(result, models.training.trainable_variables)

        return tf.function(run)

    parts = {
        "whole training step": lambda: models.training.train_on_batch(inputs, targets),
        "forward and backward, no update": gradient_of(
            lambda: loss(targets, models.training(inputs, training=True)) + tf.add_n(models.training.losses)
        ),
        "forward alone": tf.function(lambda: loss(targets, models.training(inputs, training=True))),
        "encoder, forward and backward": gradient_of(
            lambda: tf.reduce_sum(models.encoder(inputs["source"], training=True)["memory"])
        ),
        "output layer and loss, forward and backward": gradient_of(
            lambda: loss(targets, models.logits({"hidden": hidden, "context": context}))
        ),
    }
    seconds = interleave(parts, num_rounds=30)
    whole = seconds["whole training step"]
    report(
        "profile of a training step: ved_vattn_mean, paper preset, share of the whole step",
        [(name, median_interval(seconds[name] / whole), "share") for name in parts],
    )
