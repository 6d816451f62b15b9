"""Measures how Bayesian attention slows down fine-tuning of a BERT with 6 layers of width 384. Asserts nothing."""

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from applications.common.optimizers import optimizer_of
from applications.common.option_values import with_values
from applications.finetuning import model
from applications.finetuning.data import Codec
from applications.finetuning.options import PROGRAM
from benchmarks.paired import interleave, median_interval, report

BATCH, VOCABULARY, CLASSES = 16, 30_522, 2
SIZES = {"num_layers": 6, "num_heads": 12, "hidden_dim": 384, "intermediate_dim": 1536, "max_sequence_length": 512}


def training_step(name, length, jit):
    """Return a function that runs one training step of the model `name` on sentences of up to `length` tokens."""
    preset = with_values(PROGRAM.default, PROGRAM.preset_values("cola"))
    backbone = keras_hub.models.BertBackbone(VOCABULARY, dropout=0.0, **SIZES)
    codec = Codec(None, list(range(CLASSES)), keras.saving.serialize_keras_object(backbone), False)
    training = model.build(with_values(preset, {"model": name}), codec).training
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    training.compile(optimizer_of(preset.fit, 1000, 5000), loss, jit_compile=jit)
    generator = np.random.default_rng(0)
    lengths = generator.integers(length // 2, length + 1, size=BATCH)
    inputs = {
        "token_ids": tf.constant(generator.integers(5, VOCABULARY, size=(BATCH, length)), tf.int32),
        "segment_ids": tf.zeros((BATCH, length), tf.int32),
        "padding_mask": tf.cast(tf.range(length) < lengths[:, None], tf.int32),
    }
    targets = tf.constant(generator.integers(CLASSES, size=BATCH), tf.int32)
    return lambda: training.train_on_batch(inputs, targets)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("length", [16, 64])
def test_step_over_deterministic(length, jit):
    steps = {name: training_step(name, length, jit) for name in ("deterministic", "no_kl", "wc")}
    seconds = interleave(steps, num_rounds=12, num_warm_up=2)
    rows = [(name, median_interval(1e3 * x), "ms") for name, x in seconds.items()]
    rows += [
        (f"{name} / deterministic", median_interval(seconds[name] / seconds["deterministic"]), "ratio")
        for name in ("no_kl", "wc")
    ]
    report(f"fine-tuning step {'jit' if jit else 'graph'} {length}: B {BATCH}, {length} tokens, BERT 6 x 384", rows)
