"""Provides options and runs for the tests of the variational recurrent autoencoder."""

import numpy as np
from application_cases import changed, prepared
from program_case import written
from program_cases import PAIRS, VRAE_CASE

from applications.vrae.options import MODELS, PROGRAM

APPLICATION = PROGRAM.application()
EVERY_MODEL = list(MODELS)


def options_of(folder, **values):
    """Write the data of the program's case to a folder, and return options of `train` for these data."""
    options = {**VRAE_CASE.options, **written(VRAE_CASE.data, folder), **values}
    return changed(APPLICATION.program.default, **options)


def run_of(folder, **values):
    """Return an untrained run with random weights that give every layer an effect."""
    values = {"step_log_scale": -0.5, **values}
    run, generator = prepared(APPLICATION, options_of(folder, **values)), np.random.default_rng(7)
    for weight in run.models.training.trainable_weights:
        weight.assign_add(generator.normal(size=weight.shape, scale=0.3))
    return run


def sentences_of(run, part="valid"):
    """Return source, target_input and target of the first batch of a split."""
    inputs, target = next(iter(run.data[part].training_batches(run.options)))
    return inputs["source"], inputs["target_input"], target


def opinosis(folder, references=True):
    """Write two topics in the Opinosis layout, and return the options that name their folders."""
    for number, name in enumerate(("food", "rooms")):
        path = folder / "topics" / f"{name}.txt.data"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [english for _, english in PAIRS[number::4]]
        path.write_bytes("\r\n".join([f" {lines[0]} \x93so\x94", "", "...", *lines[1:]]).encode("latin-1"))
        if references:
            for reference in (1, 2):
                path = folder / "gold" / name / f"{name}.{reference}.gold"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{lines[reference]}\n{lines[0]}\n")
    return ["--documents", folder / "topics", *(["--references", folder / "gold"] if references else [])]
