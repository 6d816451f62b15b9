"""Tests exit statuses and help, and that mistakes are reported before TensorFlow is imported."""

import dataclasses
import errno
import json
import os
import runpy
import subprocess
import sys
import types

import pytest
import tensorflow as tf
import yaml
from program_case import written
from program_cases import CASES, ROOT, SPOTLIGHT_FILES, SPOTLIGHT_FOLDER

from applications.common import command_line
from applications.common.application import PLACES
from applications.common.command_line import main
from applications.common.errors import InputError, pass_through
from applications.common.options import Positive
from applications.common.program import Program

# This program runs commands of several programs, then lists the heavy packages that have been imported.
CALLS = """
import contextlib, importlib, io, json, sys
from applications.common.command_line import main

results = []
for module, words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(importlib.import_module(module).PROGRAM, words)
        except SystemExit as stop:
            status = stop.code
    heavy = [name for name in ("tensorflow", "keras", "keras_vattn", "matplotlib", "pandas") if name in sys.modules]
    results.append([status, out.getvalue(), err.getvalue(), heavy])
print(json.dumps(results))
"""


def calls_of_toy(run, folder):
    """Return command lines of the toy program, each with its exit status and a part of its output."""
    missing = str(folder / "missing")
    return [
        ([], 0, "usage: python -m"),
        (["serve"], 2, "Unknown command 'serve': expected one of train, "),
        (["train", "--config", missing], 2, "--config: "),
        (["train", "--no-such-option", "3"], 2, "--no-such-option"),
        (["train", "--epochs", "many"], 2, "--epochs: invalid literal"),
        (["train", "surplus"], 2, "surplus"),
        (["train", "--model", "seq2seq"], 2, "seq2seq"),
        (["train", "--preset", "large"], 2, "--preset: expected one of small. Received: large"),
        (["train", "--config"], 2, "--config: expected one argument."),
        (["train", "--data", missing], 2, "no such file"),
        (["train", "--start-from", missing], 2, "is not the folder of a run"),
        (["train", "--resume", "--out", missing], 2, "is not the folder of a run"),
        (["train", "--resume", "--out", run, "--seed", "3"], 2, "contains a run with other options"),
        (["train", "--out", str(ROOT / "tests")], 2, "is not empty and contains no run"),
        (["evaluate", "--run", missing], 2, "--run: must be the folder of a run, with its config.yaml. Received: "),
        (["evaluate"], 2, "--run STR Folder of the run. (required)"),
        (["predict", "--run", run], 2, "weights.npz is missing"),
        (["predict", "--run", run, "--input", missing], 2, "--input: no such file"),
        (["compare", "--models", "seq2seq"], 2, "--models: expected one of"),
        (["compare", "--unitz", "3"], 2, "Unrecognized options: --unitz, 3 Perhaps you meant: --units INT"),
    ]


@pytest.mark.slow
def test_mistakes_and_help_do_not_import_tensorflow(toy, tmp_path):
    """Each mistake is reported in one line. Neither help nor a mistake imports TensorFlow."""
    (tmp_path / "run").mkdir()
    config = {"out": str(tmp_path / "run"), **toy.options, **written(toy.data, tmp_path)}
    (tmp_path / "run/config.yaml").write_text(yaml.safe_dump(config))
    calls = [("spotlight.options", *call) for call in calls_of_toy(str(tmp_path / "run"), tmp_path)]
    for case in CASES.values():
        calls += [(f"{case.program.name}.options", [x, "--help"], 0, "--config FILE") for x in case.program.commands]
        calls.append(
            (f"{case.program.name}.options", ["train", "--epochs", "0"], 2, "--epochs: must be greater than 0")
        )
    result = subprocess.run(
        [sys.executable, "-c", CALLS, json.dumps([call[:2] for call in calls])],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(SPOTLIGHT_FOLDER)]), "COLUMNS": "200"},
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    for (module, words, status, text), (returned, out, err, heavy) in zip(
        calls, json.loads(result.stdout), strict=True
    ):
        call = f"{module} {' '.join(words)}\n{out}{err}"
        assert returned == status and text in (out if status == 0 else err) and heavy == [], call
        assert status == 0 or (out == "" and err.startswith("error: ") and err.count("\n") == 1), call


@pytest.mark.parametrize(
    "error, status, line",
    [
        (InputError("file:3: no\nnumber"), 2, "error: file:3: no number\n"),
        (FloatingPointError("The loss became nan"), 3, "error: The loss became nan\n"),
        (OSError(errno.ENOSPC, "No space left", "a.npz"), 4, "error: [Errno 28] No space left: 'a.npz'\n"),
        (KeyboardInterrupt(), 130, "error: interrupted. Continue a training run with train --resume\n"),
    ],
)
def test_an_expected_error_is_a_line_and_a_status(toy, monkeypatch, capsys, error, status, line):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(command_line, "prepare", fail)
    assert main(toy.program, ["train"]) == status
    assert capsys.readouterr() == ("", line)


def test_an_input_error_that_passed_through_a_graph(toy, monkeypatch, capsys):
    messages = [pass_through(InputError(f"file:{number}: no number")) for number in (1, 11)]

    def fail(*arguments):
        raise tf.errors.InvalidArgumentError(None, None, f"Graph execution error:\n\nassertion failed: [{messages[1]}]")

    monkeypatch.setattr(command_line, "prepare", fail)
    assert main(toy.program, ["train"]) == 2
    assert capsys.readouterr() == ("", "error: file:11: no number\n")


@dataclasses.dataclass
class CountOptions:
    """Count words.

    Another line.
    """

    words: Positive = 3
    """How many."""


def test_a_command_of_the_programs_own(monkeypatch, capsys):
    calls = []
    monkeypatch.setitem(sys.modules, "spotlight.count_words", types.SimpleNamespace(count_words=calls.append))
    program = Program("spotlight", {"train": CountOptions, "count-words": CountOptions})
    assert main(program, ["count-words", "--words", "5"]) == 0
    assert calls == [CountOptions(5)]
    assert main(program, []) == 0
    assert "  count-words Count words.\n" in capsys.readouterr().out
    assert main(program, ["count-words", "--words", "0"]) == 2
    assert capsys.readouterr().err == "error: --words: must be greater than 0. Received: 0\n"


@pytest.mark.parametrize("name", ["applications.ved", "spotlight"])
def test_a_program_exits_with_the_status(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "train", "--epochs", "0"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module(name, run_name="__main__")
    assert stop.value.code == 2


def test_the_page_on_new_programs():
    """docs/new_application.md names every function of a program, and its example has at most 154 lines."""
    text = (ROOT / "docs" / "new_application.md").read_text(encoding="utf-8")
    for name in (name for names in PLACES.values() for name in names):
        assert f"`{name}`" in text, name
    assert sum(len(file.splitlines()) for file in SPOTLIGHT_FILES.values()) <= 154
