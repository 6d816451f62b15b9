"""Options and runs of captioning for its tests: images of a coloured quarter, and captions of them."""

import numpy as np
from application_cases import changed, prepared
from program_case import written
from program_cases import CAPTIONING_CASE

from applications.captioning.model import MODELS
from applications.captioning.options import PROGRAM

APPLICATION = PROGRAM.application()
EVERY_MODEL = list(MODELS)
# Rendered scenes, whose regions are known.
SCENES = {
    **{"network": "pixels", "grid": 4, "image_size": 16, "num_scenes": 20, "max_length": 16},
    "scene_captions": "relations",
}


def options_of(folder, **values):
    """Options of `train` with the data of the program's case, written into a folder."""
    options = {**CAPTIONING_CASE.options, **written(CAPTIONING_CASE.data, folder), **values}
    return changed(PROGRAM.default, **options)


def run_of(folder, **values):
    """A run whose model is not trained, with weights that make every part matter."""
    return randomized(prepared(APPLICATION, options_of(folder, **values)))


def run_of_scenes(**values):
    """The same on rendered scenes."""
    return randomized(prepared(APPLICATION, changed(PROGRAM.default, **scene_values(**values))))


def scene_values(**values):
    """Values of options of a run on rendered scenes."""
    defaults = {name: value for name, value in CAPTIONING_CASE.options.items() if name not in SCENES}
    return {**defaults, **SCENES, **values}


def randomized(run, scale=0.5, seed=7):
    generator = np.random.default_rng(seed)
    for weight in run.models.training.trainable_weights:
        weight.assign(generator.normal(size=weight.shape, scale=scale))
    return run


def captions_of(run, part="valid", count=None):
    """Regions, their numbers, inputs and targets of the captions of a part, arrays."""
    part = run.data[part]
    arguments = [], [], [], []
    for inputs, _ in part.batches(run.options):
        for column, name in zip(arguments, ("regions", "num_regions", "target_input", "target"), strict=True):
            column.append(inputs[name].numpy())
    return [np.concatenate(column)[:count] for column in arguments]
