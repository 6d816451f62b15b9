"""Tests the bounds, choices, files, presets and help of options."""

import dataclasses
import json
import math
import pathlib
import re
from typing import Literal

import pytest
import yaml
from program_cases import CASES

from applications.common.command_line import read_options
from applications.common.errors import InputError
from applications.common.option_values import (
    check,
    fields_of,
    is_file,
    read_values,
    values_of,
    with_values,
)
from applications.common.options import PositiveFloat, group
from applications.common.program import Program

every_program = pytest.mark.parametrize("program", [x.program for x in CASES.values()], ids=list(CASES))


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("units", 0, "must be greater than 0"),
        ("max_steps", 0, "must be greater than 0"),
        ("gamma", -1e-6, "must be greater than or equal to 0"),
        ("beta_2", 1.0, "must be less than 1"),
        ("learning_rate", math.nan, "must be a finite number"),
        ("learning_rate", math.inf, "must be a finite number"),
        ("seed", 2**22, "must be less than 4194304"),
        ("model", "seq2seq", "must be 'deterministic' or 'gaussian'"),
        ("data", "missing", "no such file"),
    ],
)
def test_a_value_that_an_option_cannot_have(toy, name, value, message):
    with pytest.raises(InputError, match=rf"^--{name.replace('_', '-')}: {message}\. Received: {value}$"):
        check(with_values(toy.program.default, {name: value}))


def test_none_as_no_value_and_as_a_choice(toy, tmp_path):
    """`none` unsets an optional option, but may be a choice of other options. The same holds in option files."""
    words = ["--clip-norm", "none", "--max-steps=none", "--mixed-precision", "none", "--jit", "off"]
    options = read_options(toy.program, "train", words)
    assert (options.fit.clip_norm, options.fit.max_steps, options.fit.mixed_precision) == (None, None, "none")
    # YAML parses off as a boolean.
    (tmp_path / "options.yaml").write_text("clip_norm: none\nmixed_precision: none\njit: off\n")
    assert read_options(toy.program, "train", ["--config", str(tmp_path / "options.yaml")]) == options
    assert options.fit.jit_compile is False


@every_program
def test_help_has_a_sentence_for_every_option(program, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    for command, options_class in program.commands.items():
        with pytest.raises(SystemExit):
            read_options(program, command, ["--help"])
        text = " ".join(re.sub("-{3,}", "", capsys.readouterr().out).split())
        for name in fields_of(options_class):
            line = re.search(rf" (--{name.replace('_', '-')}[ ,].*?) \((default|required)", text)[1]
            sentence = re.sub(r"^--[\w-]+(, --no-[\w-]+)?( (\[.*\]\]|\{[^}]*\}(\|\S+)?|[A-Z]+\b))?", "", line)
            assert sentence.strip() and not sentence.startswith(" --"), line


@every_program
def test_a_file_has_the_options_of_the_command_line(program, tmp_path):
    """A file with the values of all options, as `compare` writes for each run, gives the same options."""
    plain = json.loads(json.dumps(values_of(program.default)))
    (tmp_path / "options.yaml").write_text(yaml.safe_dump(plain))
    assert read_options(program, "train", ["--config", str(tmp_path / "options.yaml")]) == program.default


@every_program
def test_presets_and_experiments(program, tmp_path, monkeypatch):
    for name in program.presets:
        options = read_options(program, "train", ["--preset", name])
        # Presets of applications.graphs also need the file of a graph.
        check(with_values(options, {"npz": __file__}) if "npz" in fields_of(program.options) else options)
        assert values_of(options) == values_of(program.default) | program.preset_values(name)
        assert not program.preset_values(name).keys() & {"out", "seed", "train_table", "data"}
    folder = pathlib.Path(__file__).parents[3] / program.name.replace(".", "/") / "experiments"
    for path in folder.glob("*.yaml"):
        values = read_values("--config", path, program.options)
        home = tmp_path / path.stem
        home.mkdir()
        for name in values:
            # Experiment files name data files of the user, so create empty ones.
            if is_file(fields_of(program.options)[name]):
                file = home / values[name]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch() if file.suffix else file.mkdir(exist_ok=True)
        with monkeypatch.context() as context:
            context.chdir(home)
            # Experiment files omit the model, which `compare` sets.
            model = {"model": "soft"} if values.get("architecture") == "mcan" else {}
            check(with_values(program.default, values | model))


@pytest.mark.parametrize(
    "words, message",
    [
        (("--warmup-steps", 3, "--schedule", "plateau"), "--warmup-steps: the schedule plateau has no warm-up"),
        (("--warmup-epochs", 3, "--schedule", "cosine"), "--warmup-epochs: the schedule cosine has no warm-up"),
        (("--jit", "on", "--strategy", "mirrored"), "--jit: XLA cannot compile a training step on several replicas"),
        (("--resume", "--overwrite"), "is not the folder of a run"),
    ],
)
def test_options_that_do_not_go_together(toy, tmp_path, words, message):
    toy.fails(message, "train", "--out", tmp_path / "run", *words)


def test_workers_that_are_not_named(toy, tmp_path, monkeypatch):
    words = ("--strategy", "multi_worker")
    far = json.dumps({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}})
    for text in (
        None,
        "",
        "alpha:1",
        "{}",
        "[]",
        json.dumps({"cluster": {"worker": ["a:1"]}, "task": {"index": 0}}),
        far,
    ):
        monkeypatch.delenv("TF_CONFIG", raising=False) if text is None else monkeypatch.setenv("TF_CONFIG", text)
        toy.fails("--strategy multi_worker: the environment variable TF_CONFIG must name the workers", "train", *words)
    toy.fails("--strategy multi_worker: run `train` instead", "compare", "--out", tmp_path / "runs", *words)


@dataclasses.dataclass
class Deep:
    """Deep"""

    rate: PositiveFloat = 0.5
    """A rate."""
    limit: int | None = 7
    """A limit."""
    rates: tuple[float, ...] = (0.1,)
    """Rates."""


@dataclasses.dataclass
class Settings:
    """Settings."""

    model: Literal["one", "two"] = "one"
    """A choice."""
    mode: Literal["fast", "none"] = "fast"
    """Another one."""
    units: int = 3
    """A number."""
    fast: bool = True
    """A switch."""
    words: tuple[str, ...] = ()
    """Words."""
    deep: Deep = group(Deep, rate=0.25)


BAD_FILES = {
    "unit: 3": " names an unknown option: unit. Known: fast, limit, mode, model, rate, rates, units, words",
    "deep: {rate: 3}": " names an unknown option: deep. Known: ",
    "units: 1.5": ": units: must be a valid integer, ",
    "units:": ": units: must be a valid integer. Received: None",
    "rate: -1": ": rate: must be greater than 0. Received: -1",
    "model: three": ": model: must be 'one' or 'two'. Received: three",
    "words: [a, 1]": ": words: must be a valid string. Received: 1",
    "- units": " must contain one option per line, as in `units: 64`.",
    "units: [": " cannot be read: ",
    "words: \x00": " cannot be read: ",
    "units: 2024-13-45": " cannot be read: ",
    "\n": " is empty. If it is a pipe, it can be read only once.",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_an_error_names_the_file_and_the_option(tmp_path, text):
    path = tmp_path / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_values("--config", path, Settings)
    assert str(error.value).startswith(f"--config: {path}{BAD_FILES[text]}")


def test_values_of_a_file(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("rate: 1e-3\nlimit: null\nrates: [2, 5e-1]\nmode: none\nunits: 5\nwords: [a, b]\nfast: no\n")
    assert with_values(Settings(), read_values("--config", path, Settings)) == Settings(
        mode="none", units=5, fast=False, words=("a", "b"), deep=Deep(0.001, None, (2.0, 0.5))
    )


def test_nested_groups_have_one_level_of_names():
    assert list(fields_of(Settings)) == ["model", "mode", "units", "fast", "words", "rate", "limit", "rates"]

    @dataclasses.dataclass
    class Twice:
        rate: float = 1.0
        deep: Deep = group(Deep)

    with pytest.raises(TypeError, match="Twice has several options of the same name: rate"):
        fields_of(Twice)


def test_the_command_line_the_file_and_the_preset(toy, tmp_path, monkeypatch):
    """The command line overrides the file, and the file overrides the preset."""
    presets = tmp_path / "preset.yaml"
    presets.write_text("units: 8\nlearning_rate: 0.5\nepochs: 3\n")
    (tmp_path / "file.yaml").write_text("learning_rate: 0.25\nepochs: 4\n")
    monkeypatch.setattr(Program, "presets", property(lambda self: {"small": None, "large": presets}))
    words = ["--epochs", "5", f"--config={tmp_path / 'file.yaml'}", "--preset", "large"]
    values = values_of(read_options(toy.program, "train", words))
    assert (values["units"], values["learning_rate"], values["epochs"]) == (8, 0.25, 5)
