"""What stands between the words of a command and its work."""

import dataclasses
import errno
import importlib
import runpy
import sys
import types

import pytest
import tensorflow as tf
from program_cases import ROOT, SPOTLIGHT_FILES

from applications.common import command_line
from applications.common.application import PLACES
from applications.common.command_line import main
from applications.common.errors import InputError, pass_through
from applications.common.options import Positive
from applications.common.program import Program


@pytest.mark.parametrize(
    "error, status, line",
    [
        (InputError("file:3: no\nnumber"), 2, "error: file:3: no number\n"),
        (FloatingPointError("The loss became nan"), 3, "error: The loss became nan\n"),
        (OSError(errno.ENOSPC, "No space left", "a.npz"), 4, "error: [Errno 28] No space left: 'a.npz'\n"),
        (KeyboardInterrupt(), 130, "error: interrupted. A run that was training goes on with train --resume\n"),
    ],
)
def test_an_expected_error_is_a_line_and_a_status(toy, monkeypatch, capsys, error, status, line):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(command_line, "prepare", fail)
    assert main(toy.program, ["train"]) == status
    assert capsys.readouterr() == ("", line)


def test_an_error_in_a_graph_is_the_users_if_it_was_passed_through(toy, monkeypatch, capsys):
    """TensorFlow makes another one of it, among others that have been."""
    messages = [pass_through(InputError(f"file:{number}: no number")) for number in range(1, 13)]
    for number in (1, 11, 2, 12):

        def fail(*arguments, text=messages[number - 1]):
            raise tf.errors.InvalidArgumentError(None, None, f"Graph execution error:\n\nassertion failed: [{text}]")

        monkeypatch.setattr(command_line, "prepare", fail)
        assert main(toy.program, ["train"]) == 2
        assert capsys.readouterr() == ("", f"error: file:{number}: no number\n")


def test_an_unexpected_error_is_none_of_the_users(toy, monkeypatch):
    def fail(*arguments):
        raise KeyError("a fault of the program")

    monkeypatch.setattr(command_line, "prepare", fail)
    with pytest.raises(KeyError):
        main(toy.program, ["train"])


@dataclasses.dataclass
class CountOptions:
    """Count words.

    Another line.
    """

    words: Positive = 3
    """How many."""


@dataclasses.dataclass
class CountRunOptions(CountOptions):
    """Count the words of a run."""

    run: str = "nowhere"
    """Folder of the run."""


def test_a_command_of_the_programs_own(monkeypatch, capsys):
    """A module has a function of its name; help says the first line of its options' docstring."""
    calls = []
    module = types.SimpleNamespace(count_words=calls.append)
    monkeypatch.setitem(sys.modules, "spotlight.count_words", module)
    program = Program("spotlight", {"train": CountOptions, "count-words": CountOptions, "count-run": CountRunOptions})
    assert main(program, ["count-words", "--words", "5"]) == 0
    assert calls == [CountOptions(5)]
    assert main(program, []) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "count" in line] == [
        "  count-words Count words.",
        "  count-run  Count the words of a run.",
    ]
    for words, error in (
        (["count-words", "--words", "0"], "--words: must be greater than 0. Received: 0"),
        (["count-run"], "nowhere is not the folder of a run: it has no config.yaml."),
        (["count_words"], "Unknown command 'count_words': expected one of train, count-words, count-run."),
    ):
        assert main(program, words) == 2
        assert capsys.readouterr().err == f"error: {error}\n"
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["applications.ved", "applications.nmt", "spotlight"])
def test_a_program_exits_with_the_status(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "train", "--epochs", "0"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module(name, run_name="__main__")
    assert stop.value.code == 2
    assert capsys.readouterr().err == "error: --epochs: must be greater than 0. Received: 0\n"


def test_a_program_without_a_function_is_told_where_it_belongs(toy, monkeypatch):
    monkeypatch.delattr(importlib.import_module("spotlight.report"), "evaluate")
    with pytest.raises(TypeError, match=r"spotlight\.report has no function evaluate"):
        toy.program.application()


def test_the_page_on_a_program_of_ones_own_names_every_function():
    text = (ROOT / "docs" / "new_application.md").read_text(encoding="utf-8")
    for name in (name for names in PLACES.values() for name in names):
        assert f"`{name}`" in text, name
    assert "tensorflow" not in SPOTLIGHT_FILES["spotlight/options.py"]
