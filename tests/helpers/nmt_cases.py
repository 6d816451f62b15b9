"""Provides tiny data, options and models for the tests of neural machine translation."""

import numpy as np
from application_cases import changed, codec_of_size
from program_cases import PAIRS

from applications.common.application import Run
from applications.nmt.decode import Translator
from applications.nmt.model import build
from applications.nmt.options import PROGRAM, Options

APPLICATION = PROGRAM.application()
VOCABULARY = 30
SMALL = {
    "embedding_width": 8,
    "encoder_units": 6,
    "units": 10,
    "attention_units": 7,
    "vocabulary_size": 60,
    "max_length": 12,
    "batch_size": 8,
    "epochs": 1,
    "num_beams": 3,
    "valid_fraction": 0.2,
    "segmentation": "words",
    "emission": "states",
}


def write_pairs(folder, pairs=PAIRS, names=("train.src", "train.tgt")):
    """Write both sides of the pairs to a folder and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, side in zip(names, zip(*pairs, strict=True), strict=True):
        (folder / name).write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return folder


def small_options(folder, **changes):
    """Write pairs to folder/data, and return options of a run in folder/run on these pairs."""
    data = folder / "data"
    if not data.exists():
        write_pairs(data)
    places = {"data": str(data), "out": str(folder / "run")}
    return changed(Options(), **{**places, **SMALL, **changes})


def arrays(batch=4, source=5, target=6, vocabulary=VOCABULARY, seed=0):
    """Return inputs of the training model; the second pair is shorter."""
    generator = np.random.default_rng(seed)
    sources, targets = (generator.integers(4, vocabulary, (batch, length)) for length in (source, target))
    sources[1, 3:] = targets[1, 4:] = 0
    target_input = np.concatenate([np.full((batch, 1), 2), targets[:, :-1]], axis=1)
    target_input[1, 4:] = 0
    named = {"source": sources, "target_input": target_input, "target": targets}
    return {name: x.astype("int32") for name, x in named.items()}


# A codec that consists of vocabulary sizes, because these tests use only ids.
CODEC = codec_of_size(VOCABULARY, VOCABULARY)


def random_run(model, **changes):
    """Return a run without data whose model has random weights."""
    options = changed(Options(), model=model, **{**SMALL, "num_layers": 2, **changes})
    models, generator = build(options, CODEC), np.random.default_rng(7)
    # Large random weights give every layer an effect.
    for weight in models.training.trainable_weights:
        weight.assign(generator.normal(size=weight.shape, scale=0.5))
    return Run(None, options, {}, CODEC, models)


def translator_of(model, inference=None):
    run = random_run(model)
    return Translator(run, inference), run
