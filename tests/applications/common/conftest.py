"""Fixtures that provide programs with tiny data and replace the parts of a run that a test does not examine."""

import contextlib
import pathlib
import shutil

import pytest
import yaml
from matplotlib.figure import Figure
from program_case import written
from program_cases import CASES, TOY

import keras_vattn
from applications.common import compare, page, training
from applications.common.jobs import Jobs


@pytest.fixture
def case(toy):
    return toy


@pytest.fixture
def toy():
    return CASES[TOY]


@pytest.fixture
def trained(run_of, case):
    return run_of(case).path


@pytest.fixture
def trained_toy(run_of, toy):
    return run_of(toy).path


@pytest.fixture
def copied(trained, tmp_path):
    """Return a copy of the trained run, for tests that modify the run."""
    return shutil.copytree(trained, tmp_path / "copied")


@pytest.fixture
def copied_toy(trained_toy, tmp_path):
    return shutil.copytree(trained_toy, tmp_path / "copied")


@pytest.fixture
def without_pictures(monkeypatch):
    """Write dummy pictures, because plotting takes a third of the time of a tiny run."""

    def draw(*arguments, path=None, **options):
        if path is not None:
            pathlib.Path(path).write_bytes(b"a picture")
        return Figure((0.1, 0.1))

    for name in ("alignment_heat_map", "image_attention"):
        monkeypatch.setattr(keras_vattn.plots, name, draw)
    for module in (training, compare):
        monkeypatch.setattr(module, "training_curves", lambda histories, curves, path: draw(path=path))
    monkeypatch.setattr(page, "_chart", lambda alignments: {})


@pytest.fixture
def interrupted():
    """Return a context manager that stops training, like Ctrl-C, after step `step` of epoch `epoch`, counted from 0."""

    @contextlib.contextmanager
    def interrupted(epoch, step):
        class Interrupt(training.EpochLog):
            def on_train_batch_end(self, batch, logs=None):
                super().on_train_batch_end(batch, logs)
                if (self.checkpoint.epoch, self.checkpoint.step) == (epoch, step):
                    raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(training, "EpochLog", Interrupt)
            yield

    return interrupted


@pytest.fixture
def compare_words(tmp_path):
    """Return a function that builds the command line of `compare` for tiny runs of a case, with options in a file."""

    def compare_words(case, *words, **changes):
        path = tmp_path / "options.yaml"
        values = {**case.options, **written(case.data, tmp_path), "export": False, **changes}
        path.write_text(yaml.safe_dump({name: value for name, value in values.items() if name != "model"}))
        return ["compare", "--out", tmp_path / "out", "--options", path, *words]

    return compare_words


@pytest.fixture
def commands_run(monkeypatch):
    """Let `compare` run its commands in this process instead of subprocesses, and return the list of commands."""
    commands = []

    def run(self, arguments, log):
        commands.append(arguments)
        case = next(case for case in CASES.values() if case.program == self._program)
        status, out, err = case.call(*arguments)
        with open(log, "a", encoding="utf-8") as file:
            file.write(out + err)
        return status

    monkeypatch.setattr(Jobs, "run", run)
    return commands
