"""Defines test cases of programs: data, options, and commands that run in this process."""

import contextlib
import dataclasses
import io
import pathlib
import sys
import warnings
from unittest import mock

import tensorflow as tf

from applications.common.command_line import main
from applications.common.training import TrainingRun


@dataclasses.dataclass(frozen=True)
class Case:
    """A program with tiny data and options for a model with few weights.

    Attributes:
        program: `Program`.
        options: Options of `train`, without the data.
        data: Dictionary from the options that name files to their text, or to the bytes of an .npz.
        evaluated: Data for `evaluate`, a dictionary like `data`.
        lines: Inputs of `generate` or `predict`.
        answers: Files that the program writes in addition to those of all programs.
        answer_options: Options of `generate` or `predict` that are needed to read inputs.
        steps: Steps per epoch of the toy program.
        unreadable: An input that the toy program cannot read, and the error message.
    """

    program: object
    options: dict
    data: dict
    evaluated: dict
    lines: tuple
    answers: tuple
    answer_options: tuple = ()
    steps: int = 0
    unreadable: tuple = ()

    @property
    def name(self):
        return self.program.name.rpartition(".")[2]

    @property
    def answer(self):
        """The command that reads inputs, "predict" or "generate"."""
        return "predict" if "predict" in self.program.commands else "generate"

    def answers_of(self, run, *arguments):
        """Return the command line that computes answers."""
        return [self.answer, "--run", run, *self.answer_options, *arguments]

    def train(self, out, **changes):
        """Return the command line of `train` for a run in the folder `out`, with data files in its parent folder."""
        folder = pathlib.Path(out).parent
        folder.mkdir(parents=True, exist_ok=True)
        values = {"out": str(out), **self.options, **written(self.data, folder), **changes}
        return ["train", *words_of(values)]

    def call(self, *arguments, standard_input=None, eager=True):
        """Run a command; return its status, standard output and standard error.

        Args:
            arguments: Words of the command line.
            standard_input: Bytes.
            eager: Whether to run eagerly, which for tiny models is much faster than tracing.
        """
        out, err = io.StringIO(), io.StringIO()
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(out))
            stack.enter_context(contextlib.redirect_stderr(err))
            stack.enter_context(execution(eager))
            if standard_input is not None:
                stack.enter_context(replaced_input(standard_input))
            try:
                status = main(self.program, [str(argument) for argument in arguments])
            except SystemExit as stop:
                status = stop.code
        return status, out.getvalue(), err.getvalue()

    def succeeds(self, *arguments, **options):
        """Run a command that must succeed; return its standard output."""
        status, out, err = self.call(*arguments, **options)
        assert status == 0, err
        return out

    def until_fit(self, out, **changes):
        """Call the function `until_fit` with the command line of `train` for this case."""
        with execution(eager=True):
            return until_fit(self.program, self.train(out, **changes))

    def fails(self, message, *arguments, status=2, **options):
        """Run a command that must fail with a one-line error message; return its standard output."""
        received_status, out, err = self.call(*arguments, **options)
        assert received_status == status, (received_status, err)
        assert err.startswith("error: ") and err.count("\n") == 1, err
        assert message in err, err
        return out


def until_fit(program, words):
    """Run a command line of `train` up to its call of `fit`; return the compiled model, and the training and validation
    batches."""

    class Fits(BaseException):
        pass

    def fit(run, batches_from, valid, *arguments, **named):
        model = run.models.training
        model.optimizer.build(model.trainable_variables)
        raise Fits(model, batches_from(0), valid)

    with mock.patch.object(TrainingRun, "fit", fit), contextlib.redirect_stdout(io.StringIO()):
        try:
            status = main(program, [str(word) for word in words])
        except Fits as reached:
            return reached.args
    raise AssertionError(f"The command ended with status {status}.")


def fewer(text):
    """Return the text of a data file without its last example."""
    return "".join(text.splitlines(keepends=True)[:-1])


def written(data, folder):
    """Write the files that options name; return the options with the paths."""
    values = {}
    for name, content in data.items():
        kind = ".tsv" if name.endswith(("table", "questions")) else ".json" if name.endswith("captions") else ".txt"
        path = folder / f"{name}{'.npz' if isinstance(content, bytes) else kind}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        values[name] = str(path)
    return values


def words_of(values):
    """Return the command-line words for a dictionary of options."""
    words = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, tuple):
            words += [f"--{flag}", *map(str, value)]
        else:
            words += [f"--{flag}", "none" if value is None else str(value)]
    return words


@contextlib.contextmanager
def execution(eager):
    """Context manager for eager or graph execution of every tf.function."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(eager)
    try:
        with warnings.catch_warnings():
            # Datasets stay graphs even in eager execution, and TensorFlow warns about this.
            warnings.filterwarnings("ignore", "Even though the `tf.config.experimental_run_functions_eagerly`")
            yield
    finally:
        tf.config.run_functions_eagerly(before)


@contextlib.contextmanager
def replaced_input(content):
    """Context manager in which standard input contains these bytes."""
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(content), encoding="utf-8")
    try:
        yield
    finally:
        sys.stdin = before
