"""A whole training step of the translation models at the paper's sizes, and their beam search.

Run as a program it prints the peak memory of one step in a process of its own: `python -m benchmarks.nmt_step MODEL`.
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from benchmarks.latent_emission import resident_memory
from benchmarks.paper import compiled, paper_options

from applications.common.application import Run
from applications.nmt.application import APPLICATION
from applications.nmt.generation import Translator
from applications.nmt.model import build
from applications.nmt.options import PROGRAM
from applications.text.text import START

BATCH, SOURCE, STEPS, VOCABULARY = 6, 25, 25, 14_000
SIZES = paper_options(PROGRAM).network
MODELS = ("soft", "bam_weibull", "variational_sample", "marginal", "variational_enum")


def arrays(batch=BATCH):
    generator = np.random.default_rng(0)
    source, target = (generator.integers(4, VOCABULARY, (batch, length)) for length in (SOURCE, STEPS))
    target_input = np.concatenate([np.full((batch, 1), START), target[:, :-1]], axis=1)
    named = {"source": source, "target_input": target_input, "target": target}
    return {name: tf.constant(x, tf.int32) for name, x in named.items()}


def models_of(model, **values):
    keras.utils.set_random_seed(0)
    options = paper_options(PROGRAM, model=model, **values)
    return options, build(options, VOCABULARY, VOCABULARY)


def training_step(model):
    """One step of `fit`: forward, backward, clipping and Adam."""
    models = compiled(APPLICATION, *models_of(model)).models
    inputs = arrays()
    return lambda: models.training.train_on_batch(inputs, inputs["target"])


def operations(model):
    """Multiplications and additions of the matrix products of a step: forward, and twice that backward."""
    width, units, attention = SIZES.encoder_units, SIZES.units, SIZES.attention_units
    embedding, layers = SIZES.embedding_width, SIZES.num_layers

    def recurrent(inputs, width):
        return 2 * 4 * width * (inputs + width)

    def encoder(length):
        return length * sum(2 * recurrent(embedding if index == 0 else 2 * width, width) for index in range(layers))

    candidates = {"marginal": SOURCE, "variational_enum": SOURCE, "variational_sample": 2}.get(model, 1)
    # The baseline of `variational_sample` has no backward pass.
    backward = 1 if model == "variational_sample" else candidates
    decoder = STEPS * (recurrent(embedding + 2 * width, units) + (layers - 1) * recurrent(units, units))
    score = 2 * SOURCE * 2 * width * attention + STEPS * (2 * units * attention + 2 * SOURCE * attention)
    context = STEPS * 2 * SOURCE * 2 * width
    projections = 2 * SOURCE * 2 * width * units + STEPS * 2 * units * units
    shared = encoder(SOURCE) + decoder + score + context + projections
    if model.startswith("variational"):
        shared += encoder(SOURCE) + encoder(STEPS) + 2 * SOURCE * 4 * width * width + 2 * STEPS * SOURCE * 2 * width
    words = STEPS * 2 * units * VOCABULARY
    return BATCH * (3 * shared + words * (candidates + 2 * backward))


def emission_operations(model):
    """The share of `operations` that the output matrix has."""
    candidates = {"marginal": (SOURCE, SOURCE), "variational_enum": (SOURCE, SOURCE), "variational_sample": (2, 1)}
    forward, backward = candidates.get(model, (1, 1))
    return BATCH * STEPS * 2 * SIZES.units * VOCABULARY * (forward + 2 * backward)


def beam_search(model, batch, max_length=STEPS):
    """Translate a batch with ten beams; untrained models end late, so the length is what is asked for."""

    class Segmentation(tf.Module):
        vocabulary_size = VOCABULARY

    class Codec:
        source = target = Segmentation()

    options, models = models_of(model, max_length=max_length)
    translator = Translator(Run(None, options, {}, Codec(), models))
    source = arrays(batch)["source"]
    return lambda: translator.beam(source)["ids"].numpy()


if __name__ == "__main__":
    step = training_step(sys.argv[1])
    before = resident_memory("VmRSS")
    step()
    print(resident_memory("VmHWM"), before)
