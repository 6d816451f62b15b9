"""The functions of a program that its commands call, `Application`, and a model with its data and options, `Run`."""

import dataclasses
import json

from applications.common.runs import CODEC, RunFolder


@dataclasses.dataclass
class Run:
    """A model with all that it was made from.

    Attributes:
        folder: `RunFolder`.
        options: Options of `train`.
        data: Dictionary from the name of a part, "train", "valid" and "test", to the encoded part.
            Empty where a command reads a run.
        codec: Translates between files and tensors, fitted on the training part: an object with
            `save(folder)`, which `Application.load_codec` reads; or plain values, which stand in codec.json.
        models: The result of `Application.build`; its `training` is the `keras.Model` that is trained.
    """

    folder: RunFolder
    options: object
    data: dict
    codec: object
    models: object


class Application:
    """The functions of a program: read data, build the model, report, generate, export.

    Inherit it once, and give an instance to the module `application` of the program as `APPLICATION`. The function
    `train` of the program's module `train` trains a model.

    Attributes:
        program: `Program`, its options and commands.
        columns: Tuple of `tables.Column`: the figures of a run's report, in the order of the tables.
        curves: Dictionary from columns of history.csv to their labels: quality, drawn beside the losses and the KLs.
        layouts: Dictionary from names of `compare --layout` to functions of a `compare.Comparison` that return
            Markdown, the tables of a paper for instance.
    """

    program = None
    columns = ()
    curves = {}
    layouts = {}

    def read(self, options):
        """Return the data that the options describe: a dictionary with "train", "valid" and, perhaps, "test".

        The parts are made of plain values, data classes and arrays, so that a run knows whether its data have changed.
        Everything that a user may have got wrong is an `InputError`.
        """
        raise NotImplementedError

    def load_codec(self, options, folder):
        """Return the codec that was saved in the folder of a run."""
        return json.loads((folder.path / CODEC).read_text(encoding="utf-8"))

    def encode(self, options, codec, part, training=False):
        """Return a part as the model reads it. A dictionary `report` of it is printed, and kept in metrics.json."""
        return part

    def build(self, options, codec):
        """Return the models: an object whose `training` is a functional `keras.Model`."""
        raise NotImplementedError

    def evaluate(self, run, part, evaluation=None):
        """Report on a part.

        Args:
            run: `Run`.
            part: An entry of `run.data`.
            evaluation: The program's options of `evaluate`; `None` at the end of training.

        Returns:
            A dictionary of figures, for metrics.json; and the outputs that `report` makes files of.
        """
        raise NotImplementedError

    def read_other(self, options, evaluation):
        """Return the part that `evaluate` is to report on if its options name files, `None` if they do not."""
        return None

    def files(self, outputs):
        """Return a dictionary from the names of text files that a report leaves to their lines."""
        return {}

    def heading(self, record):
        """Return the line above the tables: how many examples were reported on, signatures of metrics."""
        return f"{record['split']} split"

    def example_of(self, part):
        """Return an input that a user can try with `generate`, "" if it needs none, `None` if there is none to try."""
        return None

    def report(self, run, part, record, outputs):
        """Write samples and pictures into `run.folder`, and return lines for report.txt."""
        return []

    def generate(self, run, options):
        """Yield an answer, a str, to each input of `generate` or `predict`."""
        raise NotImplementedError

    def endpoints(self, run, options=None):
        """Return a `tf.Module` and the names of its functions that are exported, the default one first.

        Args:
            run: `Run`.
            options: Options of `export`; `None` at the end of training.
        """
        return None

    def compared(self, comparison):
        """Return more tables of a comparison, a list of Markdown, and draw pictures into its folder."""
        return []
