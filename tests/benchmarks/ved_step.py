"""Builds a training step of the variational encoder-decoder to measure."""

import numpy as np
import tensorflow as tf
from application_cases import codec_of_size

import keras_vattn
from applications.text.text import PAD
from applications.ved import model
from benchmarks.paper import compiled


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
