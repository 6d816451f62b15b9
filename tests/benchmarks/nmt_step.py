"""Builds steps of the translation models to measure: a training step, its matrix products, and a beam search.

`python -m benchmarks.nmt_step MODEL SETTING [jit]` runs two training steps. It prints three sizes in MiB: the peak
memory of the second step, the peak of the first step, and the resident memory before the first step.
"""

import ctypes
import dataclasses
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf
from application_cases import codec_of_size

import keras_vattn
from applications.common.application import Run
from applications.nmt.decode import Translator
from applications.nmt.model import build
from applications.nmt.options import PROGRAM
from applications.text.text import PAD, START
from benchmarks.paired import resident_memory
from benchmarks.paper import compiled, paper_options

MODELS = ("soft", "wc", "variational_sample", "marginal", "variational_enum")
# How often a model computes the output layer per target word, in the forward and in the backward pass. `None`: once per
# source word. In `variational_sample`, the baseline has no backward pass. Other models: once.
CANDIDATES = {"marginal": (None, None), "variational_enum": (None, None), "variational_sample": (2, 1)}


@dataclasses.dataclass(frozen=True)
class Setting:
    """Sizes of a batch, and the options in which a benchmark differs from the preset `paper`.

    Attributes:
        batch: Number of sentences.
        source: Number of words in each source sentence.
        steps: Number of words in each target sentence.
        words: Size of the vocabulary.
        options: Dictionary of options.
    """

    batch: int
    source: int
    steps: int
    words: int
    options: dict = dataclasses.field(default_factory=dict)


SMALL = {"embedding_width": 256, "encoder_units": 128, "units": 256, "attention_units": 256}
SETTINGS = {
    "A": Setting(6, 25, 25, 14_000),
    "B": Setting(32, 13, 14, 5500, SMALL),
    "C": Setting(128, 13, 14, 5500, SMALL),
}
PAPER = SETTINGS["A"]


def setting_of(name):
    """Return a `Setting` by name: "B" is in `SETTINGS`; "B-batch-256" and "B-length-64" change one of its sizes."""
    letter, _, change = name.partition("-")
    if not change:
        return SETTINGS[letter]
    size, value = change.split("-")
    sizes = ("source", "steps") if size == "length" else (size,)
    return dataclasses.replace(SETTINGS[letter], **dict.fromkeys(sizes, int(value)))


def arrays(setting=PAPER):
    generator = np.random.default_rng(0)
    source, target = (
        generator.integers(4, setting.words, (setting.batch, length)) for length in (setting.source, setting.steps)
    )
    target_input = np.concatenate([np.full((setting.batch, 1), START), target[:, :-1]], axis=1)
    named = {"source": source, "target_input": target_input, "target": target}
    return {name: tf.constant(x, tf.int32) for name, x in named.items()}


def models_of(model, setting=PAPER, **values):
    keras.utils.set_random_seed(0)
    options = paper_options(PROGRAM, model=model, **setting.options, **values)
    return options, build(options, codec_of_size(setting.words, setting.words))


def training_step(model, setting="A", jit=False, **values):
    """Return a function that runs one training step: forward pass, backward pass, gradient clipping and Adam."""
    setting, jit = setting_of(setting), "on" if jit else "off"
    models = compiled(
        *models_of(model, setting, jit=jit, **values), loss=keras_vattn.NegativeBound(ignore_class=PAD)
    ).models
    inputs = arrays(setting)
    return lambda: models.training.train_on_batch(inputs, inputs["target"])


def product_shapes(model, setting="A"):
    """Return the matrix products of a training step: a dictionary from each part of the model to a list of shapes.

    A shape (count, m, k, n) stands for `count` products of an m x k matrix and a k x n matrix. In a recurrent layer,
    one product handles the inputs of all time steps, and one product computes the gradient of a kernel. Only the
    products with the state, and their gradients to the state, are computed once per time step.
    """
    setting = setting_of(setting)
    network = paper_options(PROGRAM, **setting.options).network
    width, units, attention = network.encoder_units, network.units, network.attention_units
    batch, length, steps, memory = setting.batch, setting.source, setting.steps, 2 * network.encoder_units

    def dense(rows, inside, outside, backward=True):
        """Return the shape of a product and, if `backward`, the shapes of the products for its two gradients."""
        shapes = [(1, rows, inside, outside)]
        return [*shapes, (1, rows, outside, inside), (1, inside, rows, outside)] if backward else shapes

    def in_loop(count, rows, inside, outside):
        return [(count, rows, inside, outside), (count, rows, outside, inside), (1, inside, count * rows, outside)]

    def recurrent(length):
        shapes = []
        for layer in range(network.num_layers):
            below = network.embedding_width if layer == 0 else memory
            shapes += 2 * (dense(batch * length, below, 4 * width) + in_loop(length, batch, width, 4 * width))
        return shapes

    decoder = dense(batch * steps, network.embedding_width, 4 * units) + in_loop(
        steps, batch, memory + units, 4 * units
    )
    decoder += (network.num_layers - 1) * in_loop(steps, batch, 2 * units, 4 * units)
    decoder += in_loop(steps, batch, units, attention) + dense(batch * length, memory, attention)
    # The product with the score vector, and the weighted sum: once in the forward and twice in the backward pass.
    decoder += 3 * [(steps, batch * length, attention, 1), (steps, batch, length, memory)]
    emission = dense(batch * steps, units, units) + dense(
        batch * (length if model in CANDIDATES else steps), memory, units
    )
    forward, backward = (length if x is None else x for x in CANDIDATES.get(model, (1, 1)))
    rows = batch * steps
    words = [(1, forward * rows, units, setting.words)]
    words += [(1, backward * rows, setting.words, units), (1, units, backward * rows, setting.words)]
    parts = {"encoder": recurrent(length), "decoder": decoder, "emission": emission, "words": words}
    if model.startswith("variational"):
        inference = recurrent(length) + recurrent(steps) + dense(batch * length, memory, memory)
        parts["inference network"] = [*inference, *(3 * [(batch, steps, memory, length)])]
    return parts


# Maximum number of rows in one product, because the output layer for all candidates would not fit into memory.
MOST_ROWS = 4096


def matrix_products(shapes):
    """Return a function that computes the products with these shapes (count, m, k, n), one after another."""
    generator = np.random.default_rng(0)

    def variable(*shape):
        return tf.Variable(generator.normal(size=shape).astype("float32"))

    short, cut, kernels = [], [], {}
    for count, m, k, n in shapes:
        # Cut the longest side. Use different rows for each product, because TensorFlow computes equal products once.
        parts = max(1, -(-max(m, k) // MOST_ROWS))
        m, k = (m, -(-k // parts)) if k > m else (-(-m // parts), k)
        if (k, n) not in kernels:
            kernels[k, n] = variable(k, n)
        pairs = [(variable(m, k), kernels[k, n]) for _ in range(count)]
        (cut if parts > 1 else short).append((pairs, parts))

    @tf.function(autograph=False)
    def compute(pairs):
        entries = []
        for rows, kernel in pairs:
            # Return one element of each product, because TensorFlow prunes products that are not used.
            with tf.control_dependencies(entries[-1:]):
                entries.append(tf.matmul(rows, kernel)[0, 0])
        return tf.stack(entries)

    short = [pair for pairs, _ in short for pair in pairs]

    def run():
        if short:
            compute(short).numpy()
        for pairs, parts in cut:
            for _ in range(parts):
                compute(pairs).numpy()

    return run


def beam_search(model, batch, inference=None, max_length=PAPER.steps):
    """Return a function that translates a batch with ten beams. An untrained model decodes up to `max_length`."""

    class Segmentation(tf.Module):
        vocabulary_size = PAPER.words

    class Codec:
        source = target = Segmentation()

    options, models = models_of(model, max_length=max_length)
    translator = Translator(Run(None, options, {}, Codec(), models), inference)
    source = arrays(dataclasses.replace(PAPER, batch=batch))["source"]
    return lambda: translator.beam(source)["ids"].numpy()


if __name__ == "__main__":
    model, setting, *kind = sys.argv[1:]
    step = training_step(model, setting, jit=kind == ["jit"])
    before = resident_memory("VmRSS")
    step()
    first = resident_memory("VmHWM")
    # The peak of the first step includes memory of the compiler. Free it, and reset the peak that the kernel records.
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    step()
    print(resident_memory("VmHWM"), first, before)
