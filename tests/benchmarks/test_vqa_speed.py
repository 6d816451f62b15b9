"""Speed of question answering at the paper's size: what Bayesian attention costs. Prints a table, asserts no time."""

import numpy as np
import tensorflow as tf
from application_cases import changed
from benchmarks.paired import interleave, median_interval, report

import keras_vattn
from applications.common.optimizers import optimizer_of
from applications.common.option_values import with_values
from applications.text.text import SPECIAL_TOKENS, Vocabulary
from applications.vision.codec import RegionCodec
from applications.vision.program import Codec
from applications.vqa import model
from applications.vqa.options import PROGRAM

BATCH, REGIONS, WORDS, WIDTH, ANSWERS, VOCABULARY = 64, 100, 14, 2048, 3129, 10_000


def training_step(name, seed=0):
    """Return a function that makes a training step of a model of the architecture mcan, and its parameters."""
    preset = with_values(PROGRAM.default, PROGRAM.preset_values("mcan"))
    options = changed(preset, model=name, architecture="mcan", labels="drawn")
    words, answers = (list(map(str, range(count))) for count in (VOCABULARY - len(SPECIAL_TOKENS), ANSWERS))
    codec = Codec(Vocabulary(words), RegionCodec(WIDTH, REGIONS), answers)
    models = model.build(options, codec)
    training = models.training
    training.compile(optimizer_of(options.fit, 100, 1000), keras_vattn.NegativeBound())
    generator = np.random.default_rng(seed)
    inputs = {
        "regions": tf.constant(generator.normal(size=(BATCH, REGIONS, WIDTH)), tf.float32),
        "num_regions": tf.constant(generator.integers(REGIONS // 2, REGIONS + 1, size=BATCH), tf.int32),
        "question": tf.constant(generator.integers(4, VOCABULARY, size=(BATCH, WORDS)), tf.int32),
        "answer": tf.constant(generator.integers(ANSWERS, size=BATCH), tf.int32),
    }
    return lambda: training.train_on_batch(inputs, inputs["answer"]), models.parameters["generative"]


def test_step_over_soft():
    steps, parameters = {}, {}
    for name in ("soft", "wc"):
        steps[name], parameters[name] = training_step(name)
    seconds = interleave(steps, num_rounds=8, num_warm_up=2)
    rows = [(name, median_interval(1e3 * x), "ms") for name, x in seconds.items()]
    rows.append(("wc / soft", median_interval(seconds["wc"] / seconds["soft"]), "ratio"))
    rows.append(("parameters, wc less soft", (parameters["wc"] - parameters["soft"],) * 3, ""))
    report("vqa step: mcan, B 64, 100 regions, 14 words, paper preset", rows)
