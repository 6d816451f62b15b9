"""What the commands call of a program, `Application`, and a model with its data and options, `Run`."""

import dataclasses
import importlib.util
import types
import typing

from applications.common.records import read_record
from applications.common.runs import CODEC, RunFolder
from applications.common.shown import Shown


@dataclasses.dataclass
class Run:
    """A model with all that it was made from.

    Attributes:
        folder: `RunFolder`.
        options: Options of `train`.
        data: Dictionary from the name of a part, "train", "valid" and "test", to the encoded part.
            Empty where a command reads a run.
        codec: Translates between files and tensors, fitted on the training part: an object with
            `save(folder)`, which `load_codec` reads; or a dictionary of plain values, which stands in codec.json.
        models: The result of `build`; its `training` is the `keras.Model` that is trained.
    """

    folder: RunFolder
    options: object
    data: dict
    codec: object
    models: object


_TABLES = ("COLUMNS", "CURVES", "LAYOUTS")
# Which module of a program has which names. A program that decodes has decode.py in place of serve.py.
PLACES = {
    "data": ("read", "read_other", "load_codec", "encode"),
    "model": ("build",),
    "report": (*_TABLES, "evaluate", "files", "heading", "example_of", "shown", "summary", "report", "compared"),
    "serve": ("generate", "endpoints"),
}
_REQUIRED = ("read", "build", "evaluate", "generate")


def _read_codec(options, folder):
    return read_record(folder.path / CODEC, or_none=True)


@dataclasses.dataclass(frozen=True)
class Application:
    """The functions and tables of a program that its commands call; a program may leave out those with a default.

    Attributes:
        program: `Program`.
        read: `read(options)` returns the data that the options of `train` describe: a dictionary with "train", "valid"
            and, perhaps, "test". The parts are made of plain values, data classes and arrays, so that a run knows
            whether its data have changed. Everything that a user may have got wrong is an `InputError`.
        read_other: `read_other(options, evaluation)` returns the part that `evaluate` is to report on if its options
            name files. Defaults to none.
        load_codec: `load_codec(options, folder)` returns the codec of a `RunFolder`. Defaults to codec.json.
        encode: `encode(options, codec, part, training=False)` returns a part as the model reads it. A dictionary
            `report` of it is printed, and kept in metrics.json. Defaults to the part.
        build: `build(options, codec)` returns a functional `keras.Model`, or an object that has it as `training`.
        columns: `COLUMNS`, `tables.Column`s: the figures of a report, in the order of the tables.
        curves: `CURVES`, a dictionary from columns of history.csv to their labels: quality, drawn beside the
            losses and the KLs.
        layouts: `LAYOUTS`, a dictionary from names of `compare --layout` to functions of a `compare.Comparison` that
            return Markdown, the tables of a paper for instance; a `methods.Uncertainty` under the name "uncertainty" is
            what the command of that name asks.
        evaluate: `evaluate(run, part, evaluation=None)` returns a dictionary of figures of an encoded part, and outputs
            that `files` and `report` get. `evaluation` are the options of `evaluate`, `None` at the end of training.
        files: `files(outputs)` returns a dictionary from the names of text files to their lines. Defaults to none.
        heading: `heading(record)` returns the line above the tables: how many examples were reported on, signatures of
            metrics. Defaults to the name of the part.
        example_of: `example_of(part)` returns, for an encoded part, a str that a user can try with `generate`, "" if it
            needs no input, `None` if there is none to try.
        shown: `shown(run, part, outputs)` returns `shown.Shown`: samples and alignments of an encoded part, for
            report.html. Defaults to none.
        summary: `summary(report)` returns sentences on how good the result is, with counts, for the dictionary that
            `evaluate` returns: the first lines of report.txt and report.html. Defaults to none.
        report: `report(run, part, record, outputs, shown)` writes samples and pictures into `run.folder`, and returns
            lines for report.txt. Report.html has the PNG files there and in pictures/. Defaults to none.
        compared: `compared(comparison)` returns more tables of a comparison, a list of Markdown, and draws pictures
            into its folder. Defaults to none.
        generate: `generate(run, options)` yields an answer, a str, to each input of `generate` or `predict`.
        endpoints: `endpoints(run, options=None)` returns a `tf.Module` and the names of its functions that are
            exported, the default one first; `None` for a run that exports nothing. `options` are the options of
            `export`, `None` at the end of training. Defaults to `predict`, the model on a batch of its only input.
    """

    program: object
    read: typing.Callable
    build: typing.Callable
    evaluate: typing.Callable
    generate: typing.Callable
    endpoints: typing.Callable
    read_other: typing.Callable = lambda options, evaluation: None
    load_codec: typing.Callable = _read_codec
    encode: typing.Callable = lambda options, codec, part, training=False: part
    columns: tuple = ()
    curves: dict = dataclasses.field(default_factory=dict)
    layouts: dict = dataclasses.field(default_factory=dict)
    files: typing.Callable = lambda outputs: {}
    heading: typing.Callable = lambda record: f"{record['split']} split"
    example_of: typing.Callable = lambda part: None
    shown: typing.Callable = lambda run, part, outputs: Shown()
    summary: typing.Callable = lambda report: []
    report: typing.Callable = lambda run, part, record, outputs, shown: []
    compared: typing.Callable = lambda comparison: []

    def build_models(self, options, codec):
        """Return an object whose `training` is the model that is trained."""
        models = self.build(options, codec)
        return models if hasattr(models, "training") else types.SimpleNamespace(training=models)

    @classmethod
    def of(cls, program):
        """Import the modules of a program, and TensorFlow with them."""
        from applications.common.serving import model_endpoints

        functions = {"endpoints": model_endpoints}
        for module, names in PLACES.items():
            if module == "serve" and importlib.util.find_spec(f"{program.name}.decode"):
                module = "decode"
            attributes = vars(importlib.import_module(f"{program.name}.{module}"))
            functions |= {name.lower(): attributes[name] for name in names if name in attributes}
            for name in names:
                if name in _REQUIRED and name not in attributes:
                    raise TypeError(f"{program.name}.{module} has no function {name}.")
        return cls(program, **functions)
