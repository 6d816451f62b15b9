"""Help and mistakes are answered before TensorFlow is imported: a second, and not ten."""

import json
import os
import subprocess
import sys

import pytest
import yaml
from program_case import written
from program_cases import CASES, ROOT, SPOTLIGHT_FOLDER

# Calls commands of all programs, one after the other, and says what of this they have imported.
CALLS = """
import contextlib, importlib, io, json, sys
from applications.common.command_line import main

found = []
for module, words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(importlib.import_module(module).PROGRAM, words)
        except SystemExit as stop:
            status = stop.code
    heavy = [name for name in ("tensorflow", "keras", "keras_vattn", "matplotlib", "pandas") if name in sys.modules]
    found.append([status, out.getvalue(), err.getvalue(), heavy])
print(json.dumps(found))
"""


def calls_of(case, run, folder):
    """Return command lines, their status, and what they answer."""
    missing = str(folder / "missing")
    yield [], 0, "usage: python -m"
    yield ["serve"], 2, "Unknown command 'serve'"
    for command in case.program.commands:
        yield [command, "--help"], 0, "--config FILE"
        yield [command, "--config", missing], 2, "--config: "
    yield ["train", "--no-such-option", "3"], 2, "--no-such-option"
    yield ["train", "--epochs", "0"], 2, "--epochs: must be greater than 0"
    yield ["train", "--model", "seq2seq"], 2, "seq2seq"
    yield ["train", "--preset", "large"], 2, "--preset: expected one of small"
    yield ["train", f"--{next(iter(case.data)).replace('_', '-')}", missing], 2, "no such file"
    yield ["train", "--start-from", missing], 2, "is not the folder of a run"
    yield ["train", "--resume", "--out", missing], 2, "is not the folder of a run"
    yield ["train", "--resume", "--out", run, "--seed", "3"], 2, "holds a run with other options"
    yield ["train", "--out", str(ROOT / "tests")], 2, "is not empty and holds no run"
    for command in ("evaluate", case.answer, "export"):
        yield [command, "--run", missing], 2, "--run: must be the folder of a run"
        yield [command, "--run", run], 2, "weights.npz is missing"
    yield [case.answer, "--run", run, "--input", missing], 2, "--input: no such file"
    yield ["export", "--run", run, "--out", str(ROOT / "tests")], 2, "is not empty and holds no SavedModel"
    yield ["evaluate"], 2, "--run STR Folder of the run. (required)"
    yield ["compare", "--models", "seq2seq"], 2, "--models: expected one of"
    yield ["compare", "--models", f"{case.other_start}:no_such_option=3"], 2, "no_such_option"
    yield ["compare", "--models", f"{case.other_start}:epochs=-3"], 2, "epochs: must be greater than 0"


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """What every call is, what it should answer, and what it answers."""
    asked = []
    for case in CASES.values():
        folder = tmp_path_factory.mktemp("before")
        # A run that was killed before the end of its first epoch.
        (folder / "run").mkdir()
        config = {"out": str(folder / "run"), **case.options, **written(case.data, folder)}
        (folder / "run/config.yaml").write_text(yaml.safe_dump(config))
        module = f"{case.program.name}.options"
        asked += [(module, *call) for call in calls_of(case, str(folder / "run"), folder)]
    result = subprocess.run(
        [sys.executable, "-c", CALLS, json.dumps([call[:2] for call in asked])],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(SPOTLIGHT_FOLDER)]), "COLUMNS": "200"},
        cwd=tmp_path_factory.mktemp("cwd"),
    )
    assert result.returncode == 0, result.stderr
    return list(zip(asked, json.loads(result.stdout), strict=True))


def test_mistakes_are_answered_before_tensorflow_is_imported(answered):
    for (module, words, status, text), (found, out, err, heavy) in answered:
        call = f"{module} {' '.join(words)}\n{out}{err}"
        assert found == status, call
        assert text in (out if status == 0 else err), call
        assert heavy == [], call
    assert len(answered) > 60


def test_an_error_is_one_line(answered):
    for (_, words, status, _), (_, out, err, _) in answered:
        if status == 2:
            assert out == "" and err.startswith("error: ") and err.count("\n") == 1, (words, err)
