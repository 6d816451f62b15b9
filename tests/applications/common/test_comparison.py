"""Tests comparisons of models over several seeds: the planned runs, their training, and the tables."""

import dataclasses
import errno
import json
import os
import pathlib
import shutil
import sys

import pytest
from run_files import files_of, read_history, read_json, without_time

from applications.common.command_line import read_options
from applications.common.compare import Comparison
from applications.common.errors import InputError
from applications.common.jobs import Jobs
from applications.common.plan import plan
from applications.common.program import config_of

RUN = Jobs.run


def options_of(toy, **values):
    return toy.program.commands["compare"](**{"out": "out", "baseline": "deterministic", **values})


def test_the_runs_of_a_comparison(toy):
    """Each entry has one run per seed, its own options, and optionally a start, a run that is trained first."""
    names = ("gaussian", "gaussian@deterministic:gamma=1e-2,units=8")
    first, second, third, fourth = plan(toy.program, options_of(toy, models=names, seeds=2))
    assert [(run.name, run.seed) for run in (first, second, third, fourth)] == [
        (name, seed) for name in names for seed in (0, 1)
    ]
    assert (second.options.run.out, second.start) == (str(pathlib.Path("out/gaussian_seed_1")), None)
    assert (third.options.gamma, third.options.units) == (0.01, 8)
    assert (third.options.model, third.start.model) == ("gaussian", "deterministic")
    assert third.options.fit == dataclasses.replace(third.start.fit, epochs=10)
    assert (third.options.fit.epochs, third.start.fit.epochs) == (10, 5)
    assert third.options.run.start_from == third.start.run.out
    assert (third.start.run.export, third.start.units) == (False, third.options.units)
    # Option values are part of folder names, so all folders differ.
    names = ("gaussian", "gaussian:gamma=0", "gaussian:gamma=0.5", "gaussian@deterministic", "gaussian@gaussian")
    other_runs = plan(toy.program, options_of(toy, models=names[:2], seeds=2, first_seed=7))
    assert [run.options.run.seed for run in other_runs] == [7, 8, 7, 8]
    runs = plan(toy.program, options_of(toy, models=names, seeds=3, start_epochs=2))
    folders = {run.options.run.out for run in runs} | {run.start.run.out for run in runs if run.start}
    assert len(folders) == 15 + 6


@pytest.mark.parametrize("steps, first, start_steps", [(7, None, 3), (21, 3, 6), (10**6, 9, 45)])
def test_a_limit_of_steps_is_divided(toy, steps, first, start_steps):
    """A start and the run that continues it take the steps of one entry together, divided by their epochs."""
    names = (f"gaussian:max_steps={steps}", f"gaussian@deterministic:max_steps={steps}")
    one, two = plan(toy.program, options_of(toy, models=names, seeds=1, start_epochs=first))
    total = min(steps, 50)
    num_steps = [
        min(5 * options.fit.epochs, options.fit.max_steps) for options in (one.options, two.start, two.options)
    ]
    assert num_steps == [total, start_steps, total]


def test_options_of_all_runs(toy, tmp_path):
    """Options on the command line override the file. Options of an entry override the command line and the file."""
    (tmp_path / "options.yaml").write_text("units: 3\nepochs: 4\n")
    words = ["--options", str(tmp_path / "options.yaml"), "--epochs", "7", "--no-standardize", "--max-steps", "none"]
    options = read_options(toy.program, "compare", [*words, "--models", "gaussian:epochs=6", "deterministic"])
    assert options.train_values == {"epochs": 7, "standardize": False, "max_steps": None}
    runs = plan(toy.program, options)
    assert [(run.options.units, run.options.fit.epochs) for run in runs[::3]] == [(3, 6), (3, 7)]
    assert not any(run.options.standardize for run in runs)
    options = read_options(toy.program, "compare", [])
    assert (options.models, options.baseline) == (("deterministic", "gaussian"), "deterministic")


BAD = {
    "--models: expected one of deterministic, gaussian, or MODEL@START. Received: a@a": ("--models", "a@a"),
    "gaussian:units: expected option=value after the model name. Received: units": ("--models", "gaussian:units"),
    "--models: gaussian:units=[: units=[ cannot be read": ("--models", "gaussian:units=["),
    "compare: `compare` sets seed, resume for each run; omit these options.": ("--seed", "3", "--resume"),
    "--models: gaussian:seed=3: `compare` sets seed for each run; omit these options.": ("--models", "gaussian:seed=3"),
    "--start-epochs: expected a model of the form MODEL@START": ("--models", "gaussian", "--start-epochs", "1"),
    "--models: expected MODEL[@START][:option=value,...]. Received: a@b@c": ("--models", "a@b@c"),
    "--models: gaussian:unit=3 names an unknown option: unit": ("--models", "gaussian:unit=3"),
    "epochs: must be greater than 0. Received: 0": ("--models", "gaussian:epochs=0"),
    "--models: expected each model only once": ("--models", "gaussian", "gaussian"),
    "--models: gaussian@gaussian: --epochs must exceed the 2 epochs of gaussian. Received: 2": (
        "--models",
        "gaussian@gaussian",
        "--start-epochs",
        "2",
    ),
    "--max-steps leaves no training step for gaussian. Received: 1": ("--models", "gaussian@gaussian:max_steps=1"),
    "--baseline: expected one of deterministic": ("--baseline", "seq2seq"),
    "--results: must be a .json file in an existing folder": ("--results", "results"),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_starts_no_run(toy, compare_words, tmp_path, message):
    toy.fails(message, *compare_words(toy), *BAD[message])
    assert not (tmp_path / "out").exists()


def test_bad_data_are_found_before_the_runs(toy, compare_words, tmp_path, commands_run):
    words = compare_words(toy, "--models", "gaussian")
    next(tmp_path.glob("data.*")).write_text("")
    toy.fails("the file is empty", *words)
    assert not commands_run and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_comparison(toy, compare_words, tmp_path, commands_run, without_pictures):
    """A second call of `compare` reads the existing runs instead of training them again."""
    name = "gaussian:learning_rate=0.01"
    words = compare_words(toy, "--seeds", 1, "--baseline", "gaussian", "--models", name)
    printed = toy.succeeds(*words)
    out = tmp_path / "out"
    assert printed == (out / "table.md").read_text(encoding="utf-8") + f"\nwritten: {out}\n"
    assert (
        "; one seed, no claim" in printed
        and "No table of differences: the baseline gaussian is not among the" in printed
    )
    folder = out / "gaussian_learning_rate_0.01_seed_0"
    assert [path for path in out.iterdir() if path.is_dir()] == [folder]
    record = read_json(folder / "metrics.json")
    assert (record["model"], record["epochs"], record["options"]["learning_rate"]) == ("gaussian", 2, 0.01)
    assert read_json(out / "comparison.json")["runs"] == {name: [record]}
    row = next(line for line in printed.splitlines() if line.startswith(f"| {name} |"))
    for column in toy.program.application().columns:
        assert f"| {column.cell([column.value(record)])} " in row
    assert (out / "curves.png").exists() and (out / "report.html").exists()
    commands_run.clear()
    assert toy.succeeds(*words) == printed and not commands_run
    # A run of an earlier version lacks the option `jit`.
    record["options"].pop("jit")
    (folder / "metrics.json").write_text(json.dumps(record))
    assert toy.succeeds(*words) == printed and not commands_run


@pytest.mark.slow
def test_a_model_that_starts_from_another(toy, compare_words, tmp_path, commands_run, without_pictures):
    """In `gaussian@deterministic`, the start `deterministic` is trained first and does not appear in tables."""
    printed = toy.succeeds(*compare_words(toy, "--seeds", 1, "--models", "gaussian@deterministic"))
    out, names = tmp_path / "out", ("deterministic_1_epochs_seed_0", "gaussian_from_deterministic_seed_0")
    assert {path.name for path in out.iterdir() if path.is_dir()} == set(names)
    start, record = (read_json(out / name / "metrics.json") for name in names)
    assert (start["model"], start["epochs"], record["model"]) == ("deterministic", 1, "gaussian")
    assert (start["steps"], record["epochs"], record["steps"]) == (5, 2, 10)
    assert record["options"]["start_from"] == str(out / names[0])
    assert read_json(out / "comparison.json")["runs"] == {"gaussian@deterministic": [record]}
    assert "| deterministic |" not in printed


@pytest.mark.slow
def test_intervals_and_processes(toy, compare_words, tmp_path, commands_run, monkeypatch, without_pictures):
    """A run in a separate process equals a run in this process. Mean differences have intervals."""
    words = compare_words(toy, "--seeds", 2, "--models", "deterministic", "gaussian")
    printed = toy.succeeds(*words)
    assert "2 seeds, mean [95% interval]" in printed
    line = next(line for line in printed.partition("Differences")[2].splitlines() if line.startswith("| gaussian"))
    assert line.count("[") == 2
    out = tmp_path / "out"
    shutil.copytree(out, tmp_path / "here")
    shutil.rmtree(out / "gaussian_seed_1")
    with monkeypatch.context() as context:
        context.setattr(Jobs, "run", RUN)
        context.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        assert toy.succeeds(*words) == printed
    apart, together = (without_time(read_history(tmp_path / x / "gaussian_seed_1")) for x in ("out", "here"))
    # The number of threads changes the rounding of sums.
    assert all(one == pytest.approx(other, rel=1e-5) for one, other in zip(apart, together, strict=True))
    # `compare` rejects a folder with other options or other data. If a file is damaged, the error names the file.
    before = files_of(out)
    toy.fails("omit these options: units: 4 in the folder, 5 requested", *compare_words(toy, *words[5:], units=5))
    path = next(tmp_path.glob("data.*"))
    words = compare_words(toy, *words[5:])
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-3]))
    toy.fails("the data have changed since this run was trained", *words)
    assert files_of(out) == before
    words = compare_words(toy, *words[5:])
    (out / "gaussian_seed_0/metrics.json").write_text('{"options": {')
    toy.fails("metrics.json is damaged", *words)


def test_a_run_with_a_start_cannot_be_continued(toy, tmp_path):
    """A run with a start cannot be extended by steps, because the start would not take more steps."""
    options = options_of(toy, out=str(tmp_path), models=("gaussian@deterministic", "gaussian"), seeds=1)
    started, alone = plan(toy.program, options)
    for run_options in (started.start, started.options, alone.options):
        folder = pathlib.Path(run_options.run.out)
        folder.mkdir()
        (folder / "config.yaml").write_text(json.dumps(config_of(run_options)))
    options.train_values = {"max_steps": 5}
    with pytest.raises(
        InputError, match=r"contains a run with other options.*max_steps: None in the folder, 5 requested"
    ):
        plan(toy.program, options)
    assert len(plan(toy.program, dataclasses.replace(options, models=("gaussian",)))) == 1


def test_a_run_that_fails_is_named_and_the_others_are_trained(
    toy, compare_words, tmp_path, commands_run, without_pictures
):
    """An entry is not trained if its start failed."""
    bad = "gaussian@gaussian:learning_rate=1e30,clip_norm=none,optimizer=sgd"
    status, _, err = toy.call(*compare_words(toy, "--seeds", 1, "--models", bad, "gaussian"))
    assert status == 2
    assert "failed: " in err and "The loss is" in err.splitlines()[-1]
    assert (tmp_path / "out/gaussian_seed_0/metrics.json").exists()
    assert not (tmp_path / "out/table.md").exists() and not list((tmp_path / "out").glob("gaussian_from_*"))


def test_after_an_error_no_other_run_begins(toy, compare_words, monkeypatch):
    begun = []

    def run(self, arguments, log):
        begun.append(arguments)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Jobs, "run", run)
    status, _, err = toy.call(*compare_words(toy, "--seeds", 5, "--models", "gaussian", "deterministic"))
    assert status == 4 and "No space left on device" in err
    assert len(begun) < 10


@pytest.mark.parametrize("jobs", [1, 5])
def test_an_entry_waits_for_its_start(toy, compare_words, monkeypatch, jobs):
    """Each run is trained once, and a start is trained before the run that continues it."""
    ended = []

    def train(self, options):
        assert options.run.start_from is None or pathlib.Path(options.run.start_from).name in ended
        ended.append(pathlib.Path(options.run.out).name)

    monkeypatch.setattr(Comparison, "_train", train)
    models = ("gaussian@deterministic", "gaussian", "gaussian@gaussian")
    words = compare_words(toy, "--seeds", 2, "--jobs", jobs, "--baseline", "gaussian", "--models", *models)
    # The patched `_train` writes no results.
    toy.fails("metrics.json cannot be read", *words)
    starts = {f"{model}_1_epochs_seed_{seed}" for model in ("deterministic", "gaussian") for seed in (0, 1)}
    lasts = {f"gaussian_from_{model}_seed_{seed}" for model in ("deterministic", "gaussian") for seed in (0, 1)}
    assert sorted(ended) == sorted(starts | lasts | {"gaussian_seed_0", "gaussian_seed_1"})
