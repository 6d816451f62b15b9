"""Defines `Application` (the functions that a program provides for its commands) and `Run` (a model with its data)."""

import dataclasses
import importlib.util
import types
import typing

from applications.common.records import read_record
from applications.common.runs import CODEC, RunFolder
from applications.common.shown import Shown


@dataclasses.dataclass
class Run:
    """A model with its options, data and codec.

    Attributes:
        folder: `RunFolder`.
        options: Options of `train`.
        data: Dictionary from the name of a split ("train", "valid", "test") to the encoded split. It is empty in all
            commands except `train`.
        codec: Data fitted on the training split, for instance vocabularies. The codec is a dictionary of plain values,
            stored in codec.json, or an object whose method `save(folder)` writes the files that `load_codec` reads.
        models: The result of `Application.build_models`. Its attribute `training` is the `keras.Model` that is trained.
    """

    folder: RunFolder
    options: object
    data: dict
    codec: object
    models: object


_TABLES = ("COLUMNS", "CURVES", "LAYOUTS")
# Names that `Application` reads from each module of a program. If decode.py exists, it is read instead of serve.py.
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
    """The functions and tables that a program defines for the commands. Some have a default.

    Attributes:
        program: `Program`.
        read: `read(options)` returns the data that the options of `train` describe: a dictionary with "train", "valid"
            and, optionally, "test". A split may contain plain values, data classes and arrays, because `digest_of`
            accepts no other types. `read` raises `InputError` for user errors.
        read_other: `read_other(options, evaluation)` reads the data files named by `evaluation`, the options of the
            command `evaluate`. If `evaluation` names no files, it returns `None`. Defaults to always returning `None`.
        load_codec: `load_codec(options, folder)` returns the codec stored in a `RunFolder`. Defaults to reading
            codec.json.
        encode: `encode(options, codec, part, training=False)` returns the tensors of a split. The result may have an
            attribute `report`: a dictionary to print and to store in metrics.json. Defaults to the unchanged split.
        build: `build(options, codec)` returns a functional `keras.Model`, or an object with such a model as `training`.
        columns: Tuple of `tables.Column`, the metrics in the order of the table (`COLUMNS` in report.py).
        curves: Quality metrics to plot: a dictionary from columns of history.csv to labels (`CURVES` in report.py).
        layouts: Dictionary from values of `compare --layout` to functions (`LAYOUTS` in report.py). A function takes a
            `compare.Comparison` and returns a list of Markdown texts, for instance the tables of a paper. The command
            `uncertainty` uses `LAYOUTS["uncertainty"]`, a `methods.Uncertainty`.
        evaluate: `evaluate(run, part, evaluation=None)` returns two values for an encoded split: a dictionary of
            metrics, and the outputs, which are passed to `files`, `shown` and `report`. `evaluation`: options of the
            command `evaluate`; `None` at the end of training.
        files: `files(outputs)` returns a dictionary that maps names of text files to their lines. Defaults to no files.
        heading: `heading(record)` returns the line above the tables. It states, for instance, the number of examples.
            Defaults to the name of the split.
        example_of: `example_of(part)` returns a line of input for `generate` from an encoded split. It returns "" if
            `generate` needs no input, and `None` if the split contains no example. Defaults to `None`.
        shown: `shown(run, part, outputs)` returns a `shown.Shown`: the samples and alignments of an encoded split for
            report.html. Defaults to no samples.
        summary: `summary(report)` returns the first lines of report.txt and report.html: sentences about the metrics
            `report`. Defaults to no sentences.
        report: `report(run, part, record, outputs, shown)` writes samples and pictures into `run.folder`, and returns
            lines for report.txt. Report.html shows the PNG files in this folder and in pictures/. Defaults to no lines.
        compared: `compared(comparison)` saves pictures in the folder of the comparison, and returns a list of further
            Markdown tables. Defaults to no tables.
        generate: `generate(run, options)` yields one line of output for each input of `generate` or `predict`.
        endpoints: `endpoints(run, options=None)` returns a `tf.Module` and the names of its exported functions, the
            default function first, or `None` if the run cannot be exported. `options`: options of the command `export`;
            `None` at the end of training. Defaults to a module with one function, `predict`, which calls the model.
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
        """Call `build`. Return an object whose attribute `training` is the model to train."""
        models = self.build(options, codec)
        return models if hasattr(models, "training") else types.SimpleNamespace(training=models)

    @classmethod
    def of(cls, program):
        """Import the modules of a `Program`, and TensorFlow. Return the `Application`."""
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
