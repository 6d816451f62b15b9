"""Provides options and runs for tests of programs."""

import importlib
import pathlib
import re
import types

import numpy as np

from applications.common.application import Run
from applications.common.compare import Comparison
from applications.common.option_values import fields_of, with_values


def changed(options, **values):
    """Return options with some values changed. Unknown names raise an error."""
    unknown = values.keys() - fields_of(type(options)).keys()
    assert not unknown, unknown
    return with_values(options, values)


def codec_of_size(source, target):
    """Return a stand-in for a text codec that has only vocabulary sizes, which are all that models read."""
    return types.SimpleNamespace(
        **{name: types.SimpleNamespace(vocabulary_size=size) for name, size in (("source", source), ("target", target))}
    )


def codec_of(application, options, data):
    """Return the codec that `train` would fit to these data."""
    train = importlib.import_module(f"{application.program.name}.train")
    fit = train.codec_of if hasattr(train, "codec_of") else train.Codec.fit
    return fit(options, data["train"])


def prepared(application, options):
    """Return a run with encoded data and an untrained model."""
    data = application.read(options)
    codec = codec_of(application, options, data)
    encoded = {name: application.encode(options, codec, part, name == "train") for name, part in data.items()}
    return Run(None, options, encoded, codec, application.build_models(options, codec))


def prepared_anywhere(application, options):
    """Return a `prepared` run with perturbed weights, so that all parts of the model affect the output."""
    run, generator = prepared(application, options), np.random.default_rng(7)
    for weight in run.models.training.trainable_weights:
        weight.assign_add(generator.normal(size=weight.shape, scale=0.3))
    return run


# Fields of records that the titles of tables need.
TRAINED = {"epochs": 2, "data": {"train": {"pairs": 1000}}}
HERE = "here: 1,000 pairs, 2 epochs"


class Compared(Comparison):
    """A comparison with artificial records and reports instead of trained runs.

    Attributes:
        evaluate_arguments: Dictionary from the name of a model to the arguments of its `evaluate`, `None` for a skipped
            run.
    """

    def __init__(self, application, options, records, reports=None):
        super().__init__(application, options)
        self.records = {name: [TRAINED | record for record in seed_records] for name, seed_records in records.items()}
        self.reports = reports
        self.evaluate_arguments = {}
        for run in self.planned:
            pathlib.Path(run.options.run.out).mkdir(parents=True)

    def write(self, name, lines_by_model):
        """Write a text file into the folder of every run; `lines_by_model` is {model: [lines of each seed]}."""
        for run in self.planned:
            text = "".join(f"{line}\n" for line in lines_by_model[run.name][run.seed - self.options.first_seed])
            pathlib.Path(run.options.run.out, name).write_text(text, encoding="utf-8")

    def evaluate(self, name, arguments_of, **command):
        self.evaluate_arguments = {run.name: arguments_of(run) for run in self.planned}
        return {model: reports for model, reports in self.reports.items() if self.evaluate_arguments[model] is not None}


def tables_of(text):
    """Return the tables in a Markdown text: a dictionary from titles to rows, each a dictionary from headings to
    cells."""
    tables, title = {}, None
    for part in text.strip().split("\n\n"):
        if part.startswith("|"):
            rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in part.splitlines()]
            tables[title] = [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]
        title = part
    return tables
