"""Tiny data and options for the tests of the variational encoder-decoder, and its commands called in this process."""

import contextlib
import dataclasses
import io
import json

import numpy as np

from applications.common.command_line import run
from applications.ved.__main__ import COMMANDS
from applications.ved.options import Options

PLACES = ("kenya", "france", "peru", "japan", "italy", "china", "spain", "chile")
THINGS = ("money", "tea", "script", "first day")
QUESTIONS = ("what is the {thing} of {place} ?", "which {thing} has {place} ?")
PAIRS = [
    (f"in {place} the {thing} is big", question.format(place=place, thing=thing))
    for place in PLACES
    for thing in THINGS
    for question in QUESTIONS
]
SOURCES = ["in kenya the tea is big", "in peru the first day is big", "", "zzz qqq"]
TARGETS = ["what is the tea of kenya ?", "which first day has peru ?", "", "zzz ?"]

SMALL = {
    "embedding_width": 8,
    "encoder_units": 8,
    "units": 8,
    "latent_units": 4,
    "attention_size": 6,
    "max_source_length": 10,
    "max_target_length": 8,
    "batch_size": 20,
    "epochs": 2,
    "stage_one_epochs": 1,
    "annealing_center": 4.0,
    "annealing_slope": 0.5,
    "valid_fraction": 0.2,
    "num_draws": 2,
    "num_decoded": 4,
    "max_test_sources": 4,
}


def write_table(path, pairs=PAIRS, columns=("source", "target")):
    path.write_text("".join("\t".join(row) + "\n" for row in [columns, *pairs]), encoding="utf-8")
    return path


def small_options(folder, **changes):
    """Return options of a run in folder/run on the pairs in folder/train.tsv, which is written."""
    table = folder / "train.tsv"
    if not table.exists():
        write_table(table)
    return Options(**{"train_table": str(table), "out": str(folder / "run"), **SMALL, **changes})


def arguments_of(options):
    """Return the command line of `train` for the options."""
    arguments = []
    for field in dataclasses.fields(options):
        value, name = getattr(options, field.name), field.name.replace("_", "-")
        if isinstance(value, bool):
            arguments.append(f"--{name}" if value else f"--no-{name}")
        elif value is not None:
            arguments += [f"--{name}", str(value)]
    return arguments


def call(*arguments):
    """Run a command; return its exit status, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = run("ved", COMMANDS, [str(argument) for argument in arguments])
        except SystemExit as stop:
            status = stop.code
    return status, out.getvalue(), err.getvalue()


def read_metrics(folder):
    return json.loads((folder / "metrics.json").read_text(encoding="utf-8"))


def read_checkpoint(path):
    """Return the record of a checkpoint and its variables, a dictionary from index and name to array."""
    with np.load(path) as archive:
        record = json.loads(archive["record"].tobytes())
        arrays = [archive[f"variable_{index:05d}"] for index in range(len(record["variables"]))]
    return record, {(index, entry[0]): array for index, (entry, array) in enumerate(zip(record["variables"], arrays))}
