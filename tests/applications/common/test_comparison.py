"""Models with several seeds: which runs there are, how they are trained, and the tables."""

import dataclasses
import errno
import importlib
import json
import os
import pathlib
import sys

import pytest
import yaml
from program_cases import every_case, few_cases
from run_files import files_of, read_history, read_json, without_time

from applications.common import compare as module
from applications.common import plan as planning
from applications.common.command_line import read_options
from applications.common.compare import Comparison
from applications.common.errors import InputError
from applications.common.jobs import Jobs
from applications.common.option_values import with_values
from applications.common.plan import plan
from applications.common.training import steps_of_run

RUN = Jobs.run


def options_of(case, **values):
    return case.program.commands["compare"](**{"out": "out", **values})


# Which runs


def test_the_runs_of_a_comparison(toy):
    """Seeds one after the other, options of one entry alone, and what is trained first."""
    names = ("gaussian", "gaussian@deterministic:gamma=1e-2,units=8")
    first, second, third, fourth = plan(toy.program, options_of(toy, models=names, seeds=2))
    assert [(run.name, run.seed) for run in (first, second, third, fourth)] == [
        (name, seed) for name in names for seed in (0, 1)
    ]
    assert (first.options.run.seed, second.options.run.seed) == (0, 1)
    assert (second.options.run.out, second.start) == (str(pathlib.Path("out/gaussian_seed_1")), None)
    assert (third.options.gamma, third.options.units) == (0.01, 8)
    assert (third.options.model, third.start.model) == ("gaussian", "deterministic")
    assert third.options.fit == dataclasses.replace(third.start.fit, epochs=10)
    assert (third.options.fit.epochs, third.start.fit.epochs) == (10, 5)
    assert third.options.run.start_from == third.start.run.out
    assert (third.start.run.export, third.start.units) == (False, third.options.units)
    assert fourth.start.run.out != third.start.run.out
    # Every folder once: an option's value is part of the name.
    names = ("gaussian", "gaussian:gamma=0", "gaussian:gamma=0.5", "gaussian@deterministic", "gaussian@gaussian")
    others = plan(toy.program, options_of(toy, models=names[:2], seeds=2, first_seed=7))
    assert [run.seed for run in others] == [run.options.run.seed for run in others] == [7, 8, 7, 8]
    runs = plan(toy.program, options_of(toy, models=names, seeds=3, start_epochs=2))
    folders = {run.options.run.out for run in runs} | {run.start.run.out for run in runs if run.start}
    assert len(folders) == 15 + 6
    assert {run.start.fit.epochs for run in runs if run.start} == {2}


@pytest.mark.parametrize("steps, first, of_start", [(7, None, 3), (21, 3, 6), (10**6, 9, 45)])
def test_a_limit_of_steps_is_shared_out(toy, steps, first, of_start):
    """Both parts of an entry have the steps of the others together, the start its share of the 10 epochs."""
    names = (f"gaussian:max_steps={steps}", f"gaussian@deterministic:max_steps={steps}")
    one, two = plan(toy.program, options_of(toy, models=names, seeds=1, start_epochs=first))
    found = [steps_of_run(options.fit, 5) for options in (one.options, two.start, two.options)]
    total = min(steps, 50)
    assert found == [total, of_start, total]


def test_a_limit_of_steps_leaves_some_for_the_start(toy):
    options = options_of(toy, models=("gaussian@deterministic:max_steps=1",), seeds=1)
    with pytest.raises(InputError, match=r"needs a step for its start. It has --max-steps 1\."):
        plan(toy.program, options)


def test_options_of_all_runs(toy, tmp_path):
    (tmp_path / "options.yaml").write_text("units: 3\nepochs: 4\n")
    options = options_of(toy, options=str(tmp_path / "options.yaml"), models=("gaussian:epochs=6", "deterministic"))
    runs = plan(toy.program, options)
    assert [(run.options.units, run.options.fit.epochs) for run in runs[::3]] == [(3, 6), (3, 4)]


def test_options_of_train_on_the_command_line(toy, tmp_path):
    """They stand over the file's, and an entry's own over them."""
    (tmp_path / "options.yaml").write_text("units: 3\nepochs: 4\n")
    words = ["--options", str(tmp_path / "options.yaml"), "--epochs", "7", "--no-standardize", "--max-steps", "none"]
    options = read_options(toy.program, "compare", [*words, "--models", "gaussian:epochs=6", "deterministic"])
    assert options.of_train == {"epochs": 7, "standardize": False, "max_steps": None}
    runs = plan(toy.program, options)
    assert [(run.options.units, run.options.fit.epochs) for run in runs[::3]] == [(3, 6), (3, 7)]
    assert not any(run.options.standardize for run in runs)
    with pytest.raises(InputError, match=r"^Unrecognized options: --unitz, 3 Perhaps you meant: --units INT"):
        read_options(toy.program, "compare", ["--unitz", "3"])
    with pytest.raises(InputError, match=r"^Unrecognized options: surplus$"):
        read_options(toy.program, "train", ["surplus"])


BAD = {
    "--models: expected one of {known}, or MODEL@START. Received: seq2seq": ("--models", "seq2seq"),
    "--models: expected one of {known}, or MODEL@START. Received: {model}@seq2seq": ("--models", "{model}@seq2seq"),
    "--models: {model}:units: expected option=value after the colon. Received: units": ("--models", "{model}:units"),
    "--models: {model}:units=[: units=[ cannot be read": ("--models", "{model}:units=["),
    "compare: a comparison sets seed, resume of each run itself.": ("--seed", "3", "--resume"),
    "--models: {model}:seed=3: a comparison sets seed of each run itself.": ("--models", "{model}:seed=3"),
    "--start-epochs: none of the models is MODEL@START": ("--models", "{model}", "--start-epochs", "1"),
    "--models: expected MODEL[@START][:option=value,...]. Received: a@b@c": ("--models", "a@b@c"),
    "--models: {model}:unit=3 names an unknown option: unit": ("--models", "{model}:unit=3"),
    "--models: {model}:batch_size=many: batch_size: must be a valid integer": ("--models", "{model}:batch_size=many"),
    "epochs: must be greater than 0. Received: 0": ("--models", "{model}:epochs=0"),
    "--models: every model once": ("--models", "{model}", "{model}"),
    "--models: {model}@{model} needs an epoch": ("--models", "{model}@{model}", "--start-epochs", "2"),
    "--baseline: expected one of {known}": ("--baseline", "seq2seq"),
    "--seeds: must be greater than 0": ("--seeds", "0"),
    "--preset: expected one of small": ("--preset", "large"),
}


@every_case
@pytest.mark.parametrize("message", BAD)
def test_bad_input_starts_no_run(case, asked, tmp_path, message):
    known = ", ".join(type(case.program.default).__annotations__["model"].__args__)
    names = {"model": case.other_start, "known": known}
    words = [word.format(**names) if word.startswith("{") else word for word in BAD[message]]
    case.fails(message.format(**names), *asked(case), *words)
    assert not (tmp_path / "out").exists()


@every_case
def test_bad_data_are_found_once_before_the_runs(case, asked, tmp_path, here):
    words = asked(case, "--models", case.other_start)
    next(tmp_path.glob(f"{next(iter(case.data))}.*")).write_text("")
    case.fails("the file is empty", *words)
    assert not here and not (tmp_path / "out").exists()


def test_data_are_read_once_for_each_model(toy, asked, monkeypatch):
    data, read = importlib.import_module(f"{toy.program.name}.data"), []
    original = data.read
    monkeypatch.setattr(data, "read", lambda options: read.append(options) or original(options))
    monkeypatch.setattr(Comparison, "_train", lambda self, options: "not trained")
    toy.fails("not trained", *asked(toy, "--seeds", 2, "--models", "gaussian", "deterministic"))
    assert [options.model for options in read] == ["deterministic", "gaussian"]


# Training, and tables


@few_cases
def test_a_comparison(case, asked, tmp_path, here, without_pictures):
    """A second time it is read."""
    model = case.other_start
    name = f"{model}:learning_rate=0.01"
    words = asked(case, "--seeds", 1, "--baseline", model, "--models", name)
    printed = case.succeeds(*words)
    out = tmp_path / "out"
    assert printed == (out / "table.md").read_text(encoding="utf-8") + f"\nwritten: {out}\n"
    assert "; one seed, no claim" in printed and f"No differences: the baseline {model}" in printed
    folder = out / f"{model}_learning_rate_0.01_seed_0"
    assert [path for path in out.iterdir() if path.is_dir()] == [folder]
    record = read_json(folder / "metrics.json")
    assert (record["model"], record["epochs"], record["options"]["learning_rate"]) == (model, 2, 0.01)
    assert read_json(out / "comparison.json")["runs"] == {name: [record]}
    columns = case.program.application().columns
    row = next(line for line in printed.splitlines() if line.startswith(f"| {name} |"))
    assert all(f"| {column.cell([column.value(record)])} " in row for column in columns if column.title in printed)
    assert (out / "curves.png").exists()
    before = {path: path.read_bytes() for path in out.glob("*/*.csv")}
    here.clear()
    assert case.succeeds(*words) == printed
    assert before == {path: path.read_bytes() for path in out.glob("*/*.csv")} and not here
    # A run of before there were pages, and this option.
    (folder / "shown.json").unlink()
    record["options"].pop("jit")
    (folder / "metrics.json").write_text(json.dumps(record))
    assert case.succeeds(*words) == printed and not here


def test_a_model_from_the_weights_of_another(toy, asked, tmp_path, here, without_pictures):
    """That one is trained first, and stands in no table."""
    printed = toy.succeeds(*asked(toy, "--seeds", 1, "--models", "gaussian@deterministic"))
    out, names = tmp_path / "out", ("deterministic_1_epochs_seed_0", "gaussian_from_deterministic_seed_0")
    assert {path.name for path in out.iterdir() if path.is_dir()} == set(names)
    start, record = (read_json(out / name / "metrics.json") for name in names)
    assert (start["model"], start["epochs"], record["model"]) == ("deterministic", 1, "gaussian")
    assert (start["steps"], record["epochs"], record["steps"]) == (5, 2, 10)
    report = (out / names[1] / "report.txt").read_text(encoding="utf-8")
    assert f"trained 2 epochs, 10 steps, begun by {out / names[0]}, the rest in " in report
    assert record["options"]["start_from"] == str(out / names[0])
    assert read_json(out / "comparison.json")["runs"] == {"gaussian@deterministic": [record]}
    assert "gaussian@deterministic |" in printed and "| deterministic |" not in printed


@pytest.mark.slow
def test_intervals_and_processes(toy, asked, tmp_path, here, monkeypatch, without_pictures):
    """Two seeds in a process of their own give what this one gives; mean differences have intervals."""
    words = asked(toy, "--seeds", 2, "--models", "deterministic", "gaussian")
    printed = toy.succeeds(*words)
    assert "2 seeds, mean [95% interval]" in printed
    assert "Paired differences over seeds against deterministic" in printed
    line = next(line for line in printed.partition("Paired")[2].splitlines() if line.startswith("| gaussian"))
    assert line.count("[") == 2
    assert [command[0] for command in here] == 4 * ["train"]
    apart = tmp_path / "out"
    apart.rename(tmp_path / "here")
    with monkeypatch.context() as context:
        context.setattr(Jobs, "run", RUN)
        context.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        assert toy.succeeds(*words) == printed
    for name in ("deterministic_seed_0", "gaussian_seed_1"):
        apart_rows, here_rows = (without_time(read_history(tmp_path / folder / name)) for folder in ("out", "here"))
        # Another number of threads adds in another order.
        assert all(apart == pytest.approx(row, rel=1e-5) for apart, row in zip(apart_rows, here_rows, strict=True))
    # Fewer seeds are among those that there are.
    assert "one seed, no claim" in toy.succeeds(*words, "--seeds", 1)
    # A baseline that is none of the models.
    other = toy.succeeds(*words, "--models", "gaussian")
    assert "No differences: the baseline deterministic is not among the models." in other
    # Other options, and other data, are another comparison.
    before = files_of(apart)
    toy.fails("these options out: units: 4 in the folder, 5 asked for", *asked(toy, *words[5:], units=5))
    path = next(tmp_path.glob("data.*"))
    words = asked(toy, *words[5:])
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-3]))
    toy.fails("the data are not those of this run", *words)
    assert files_of(apart) == before
    # A damaged file is named.
    words = asked(toy, *words[5:])
    for name, message in (("metrics.json", "metrics.json is damaged"), ("history.csv", "history.csv is damaged")):
        file = apart / "gaussian_seed_0" / name
        content = file.read_text()
        file.write_text("epoch,loss\n1,much\n" if name == "history.csv" else '{"options": {')
        toy.fails(message, *words)
        file.write_text(content)


def test_more_epochs_go_on(toy, asked, tmp_path, here, weights_only):
    """A run that starts from another does not: its start would be a longer one."""
    model = "gaussian@deterministic"
    comparison = Comparison(toy.program.application(), _options(toy, asked(toy, epochs=2), models=(model, "gaussian")))
    first, start = comparison.planned[0].options, comparison.planned[0].start
    for options in (start, first, comparison.planned[1].options):
        pathlib.Path(options.run.out).mkdir(parents=True)
        plain = json.loads(json.dumps(module.config_of(options)))
        pathlib.Path(options.run.out, "config.yaml").write_text(yaml.safe_dump(plain))
    more = with_values(comparison.planned[1].options, {"epochs": 4})
    planning._check_folder(toy.program, more, ())
    with pytest.raises(InputError, match=r"holds a run with other options.*epochs: 1 in the folder, 3 asked for"):
        planning._check_folder(toy.program, with_values(start, {"epochs": 3}), ("epochs",))
    with pytest.raises(InputError, match=r"holds a run with other options.*max_steps: None in the folder, 5 asked for"):
        plan(toy.program, _options(toy, asked(toy, epochs=2, max_steps=5), models=(model,)))
    assert first.run.start_from == start.run.out


def _options(case, words, **changes):
    options_class = case.program.commands["compare"]
    named = dict(zip(words[1::2], words[2::2], strict=True))
    return options_class(out=str(named["--out"]), options=str(named["--options"]), seeds=1, **changes)


def test_a_run_that_fails_is_named_and_the_others_are_trained(toy, asked, tmp_path, here, without_pictures):
    bad = "gaussian:learning_rate=1e30,clip_norm=none,optimizer=sgd"
    status, _, err = toy.call(*asked(toy, "--seeds", 1, "--models", bad, "gaussian"))
    assert status == 2
    assert "failed: " in err and "The loss became" in err.splitlines()[-1]
    assert (tmp_path / "out/gaussian_seed_0/metrics.json").exists()
    assert not (tmp_path / "out/table.md").exists()


def test_an_entry_does_not_start_from_what_failed(toy, asked, tmp_path, here, without_pictures):
    bad = ":learning_rate=1e30,clip_norm=none,optimizer=sgd"
    words = asked(toy, "--seeds", 1, "--models", f"gaussian@gaussian{bad}", "deterministic")
    status, _, err = toy.call(*words)
    assert status == 2
    assert "failed: " in err and "The loss became" in err.splitlines()[-1]
    assert (tmp_path / "out/deterministic_seed_0/metrics.json").exists()
    assert not list((tmp_path / "out").glob("gaussian_from_*"))


def test_after_an_error_no_other_run_begins(toy, asked, monkeypatch):
    begun = []

    def run(self, arguments, log):
        begun.append(arguments)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Jobs, "run", run)
    status, _, err = toy.call(*asked(toy, "--seeds", 5, "--models", "gaussian", "deterministic"))
    assert status == 4 and "No space left on device" in err
    assert len(begun) < 10


@pytest.mark.parametrize("jobs", [1, 5])
def test_an_entry_waits_for_what_it_starts_from(toy, asked, monkeypatch, jobs):
    """Every run once, what starts from another after it."""
    begun, ended = [], []

    def train(self, options):
        name = pathlib.Path(options.run.out).name
        assert options.run.start_from is None or pathlib.Path(options.run.start_from).name in ended
        begun.append(name)
        ended.append(name)

    monkeypatch.setattr(Comparison, "_train", train)
    models = ("gaussian@deterministic", "gaussian", "gaussian@gaussian")
    words = asked(toy, "--seeds", 2, "--jobs", jobs, "--baseline", "gaussian", "--models", *models)
    # Nothing was trained, so that there is nothing to read.
    toy.fails("metrics.json cannot be read", *words)
    starts = {f"{model}_1_epochs_seed_{seed}" for model in ("deterministic", "gaussian") for seed in (0, 1)}
    lasts = {f"gaussian_from_{model}_seed_{seed}" for model in ("deterministic", "gaussian") for seed in (0, 1)}
    assert sorted(begun) == sorted(starts | lasts | {"gaussian_seed_0", "gaussian_seed_1"})
