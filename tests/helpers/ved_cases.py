"""Provides tiny data, options and models for the tests of the variational encoder-decoder."""

import json

from application_cases import changed

from applications.ved.options import PROGRAM, Options

APPLICATION = PROGRAM.application()

PLACES = ("kenya", "france", "peru", "japan", "italy", "china", "spain", "chile")
THINGS = ("money", "tea", "script", "first day")
QUESTIONS = ("what is the {thing} of {place} ?", "which {thing} has {place} ?")
PAIRS = [
    (f"in {place} the {thing} is big", question.format(place=place, thing=thing))
    for place in PLACES
    for thing in THINGS
    for question in QUESTIONS
]

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
    """Write pairs to folder/train.tsv, and return options of a run in folder/run on these pairs."""
    table = folder / "train.tsv"
    if not table.exists():
        write_table(table)
    places = {"train_table": str(table), "out": str(folder / "run")}
    return changed(Options(), **{**places, **SMALL, **changes})


def read_metrics(folder):
    return json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
