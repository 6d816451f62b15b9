"""Provides options and runs for the tests of captioning, with images that have one coloured quarter."""

import numpy as np
from application_cases import changed, prepared
from program_case import written
from program_cases import CAPTIONING_CASE

from applications.captioning.model import MODELS
from applications.captioning.options import PROGRAM

APPLICATION = PROGRAM.application()
EVERY_MODEL = list(MODELS)
# Options for rendered scenes, where the region of each word is known.
SCENES = {
    **{"network": "pixels", "grid": 4, "image_size": 16, "num_scenes": 20, "max_length": 16},
    "scene_captions": "relations",
}


def options_of(folder, **values):
    """Write the data of the program's case to a folder, and return options of `train` for these data."""
    options = {**CAPTIONING_CASE.options, **written(CAPTIONING_CASE.data, folder), **values}
    return changed(PROGRAM.default, **options)


def run_of(folder, **values):
    """Return an untrained run with random weights that give every layer an effect."""
    return randomized(prepared(APPLICATION, options_of(folder, **values)))


def run_of_scenes(**values):
    """Return an untrained run on rendered scenes, with random weights that give every layer an effect."""
    return randomized(prepared(APPLICATION, changed(PROGRAM.default, **scene_values(**values))))


def scene_values(**values):
    """Return option values for a run on rendered scenes."""
    defaults = {name: value for name, value in CAPTIONING_CASE.options.items() if name not in SCENES}
    return {**defaults, **SCENES, **values}


def randomized(run, scale=0.5, seed=7):
    generator = np.random.default_rng(seed)
    for weight in run.models.training.trainable_weights:
        weight.assign(generator.normal(size=weight.shape, scale=scale))
    return run


def captions_of(run, part="valid", count=None):
    """Return regions, num_regions, target_input and target of the captions of a split, as arrays."""
    part = run.data[part]
    arguments = [], [], [], []
    for inputs, _ in part.batches(run.options):
        for column, name in zip(arguments, ("regions", "num_regions", "target_input", "target"), strict=True):
            column.append(inputs[name].numpy())
    return [np.concatenate(column)[:count] for column in arguments]
