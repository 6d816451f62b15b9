"""The options of every command of every program: bounds, choices, files, presets, help."""

import dataclasses
import json
import math
import pathlib
import re
import typing
from typing import Annotated, Literal

import pytest
import yaml
from program_cases import CASES, every_case
from pydantic import AfterValidator

from applications.common.command_line import read_options
from applications.common.errors import InputError
from applications.common.option_values import (
    check,
    fields_of,
    is_file,
    is_optional,
    read_values,
    typed,
    values_of,
    with_values,
)
from applications.common.options import OnDisk, PositiveFloat, group
from applications.common.program import Program

_COMMANDS = [
    pytest.param(case, command, id=f"{case.name}-{command}")
    for case in CASES.values()
    for command in case.program.commands
]
every_command = pytest.mark.parametrize(("case", "command"), _COMMANDS)


def parts(annotation):
    """Return the annotation of one value, the conditions on it, whether it may be None, and whether it is a tuple."""
    conditions, several = [], False
    optional = is_optional(annotation)
    while typing.get_origin(annotation) not in (None, Literal):
        inner = typing.get_args(annotation)
        if typing.get_origin(annotation) is Annotated:
            conditions += [x for field in inner[1:] for x in getattr(field, "metadata", [field])]
        several = several or typing.get_origin(annotation) is tuple
        annotation = next(part for part in inner if part is not type(None))
    return annotation, conditions, optional, several


def wrong_values(kind, conditions):
    """Return values that an option of a type cannot have: the first ones beyond its bounds, and a file that is none."""
    step = 1 if kind is int else 1e-6
    wrong = ["no-such-choice"] if typing.get_origin(kind) is Literal else []
    wrong += [math.nan, math.inf, -math.inf] if kind is float else []
    for condition in conditions:
        if isinstance(condition, OnDisk):
            wrong.append("missing")
        elif isinstance(condition, AfterValidator):
            wrong.append({int: 1, str: "folder/name"}[kind])
        else:
            ((name, bound),) = dataclasses.asdict(condition).items()
            wrong.append(kind(bound + {"gt": 0, "ge": -step, "lt": 0, "le": step}[name]))
    return wrong


def default_of(program, command, folder):
    """Return options of a command that are right."""
    options_class = program.commands[command]
    (folder / "config.yaml").write_text("")
    required = [
        field
        for field in dataclasses.fields(options_class)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    return options_class(**{field.name: str(folder) for field in required})


@every_command
def test_a_value_that_an_option_cannot_have(case, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    default = default_of(case.program, command, tmp_path)
    check(default)
    for name, annotation in fields_of(type(default)).items():
        refuses_wrong_values(default, name, annotation)


def refuses_wrong_values(default, name, annotation):
    kind, conditions, optional, several = parts(annotation)
    flag = re.escape(f"--{name.replace('_', '-')}")
    for value in wrong_values(kind, conditions):
        with pytest.raises(InputError, match=rf"^{flag}: .*Received: {re.escape(str(value))}$"):
            check(with_values(default, {name: (value,) if several else value}))
    if optional:
        check(with_values(default, {name: None}))
        assert typed("here", {name: "none"}, type(default)) == {name: None}
    with pytest.raises(InputError, match=rf"^here: {name}: must be "):
        typed("here", {name: {"a": 1}}, type(default))


@every_case
def test_no_value_and_the_choice_none(case):
    """`none` is no value where there may be none, and a choice where it is one, on the command line and in a file."""
    optional, choices = {}, {}
    for name, annotation in fields_of(case.program.options).items():
        kind, _, may_be_none, _ = parts(annotation)
        if may_be_none:
            optional[name] = None
        elif typing.get_origin(kind) is Literal and "none" in typing.get_args(kind):
            choices[name] = "none"
    assert {"clip_norm", "checkpoint_steps", "max_steps"} <= optional.keys() and "mixed_precision" in choices
    words = [word for name in (*optional, *choices) for word in (f"--{name.replace('_', '-')}", "none")]
    values = values_of(read_options(case.program, "train", words))
    assert {name: values[name] for name in optional} == optional
    assert {name: values[name] for name in choices} == choices


@every_case
@pytest.mark.parametrize("word, value", [("auto", "auto"), ("on", True), ("off", False)])
def test_when_a_step_is_compiled(case, tmp_path, word, value):
    """As Keras has it, whose "auto" is XLA on a GPU; YAML reads on and off, as it does true and false, as booleans."""
    assert read_options(case.program, "train", ["--jit", word]).fit.jit_compile == value
    for text in {word, str(value).lower()}:
        (tmp_path / "options.yaml").write_text(f"jit: {text}\n")
        options = read_options(case.program, "train", ["--config", str(tmp_path / "options.yaml")])
        assert (options.fit.jit, options.fit.jit_compile) == (word, value)


@every_command
def test_help_has_a_sentence_for_every_option(case, command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as stop:
        read_options(case.program, command, ["--help"])
    assert stop.value.code == 0
    text = " ".join(re.sub("-{3,}", "", capsys.readouterr().out).split())
    assert "--config FILE" in text
    for name, annotation in fields_of(case.program.commands[command]).items():
        line = re.search(rf" (--{name.replace('_', '-')}[ ,].*?) \((default|required)", text)[1]
        sentence = re.sub(r"^--[\w-]+(, --no-[\w-]+)?( (\[.*\]\]|\{[^}]*\}(\|\S+)?|[A-Z]+\b))?", "", line)
        assert sentence.strip() and not sentence.startswith(" --"), line
        kind, *_ = parts(annotation)
        if typing.get_origin(kind) is Literal:
            choices = re.search(r"\{(None,)?(.*?)\}", line.replace(", ", ","))[2]
            assert choices == ",".join(typing.get_args(kind)), line


@every_command
def test_a_file_has_the_options_of_the_command_line(case, command, tmp_path):
    """All of them: what is written is read, as `compare` does for its runs."""
    default = default_of(case.program, command, tmp_path)
    plain = json.loads(json.dumps(values_of(default)))
    (tmp_path / "options.yaml").write_text(yaml.safe_dump(plain))
    assert read_options(case.program, command, ["--config", str(tmp_path / "options.yaml")]) == default


@every_case
def test_presets_and_experiments(case, tmp_path, monkeypatch):
    program = case.program
    for name in program.presets:
        options = read_options(program, "train", ["--preset", name])
        # Presets of graphs are values for a graph, which has a file.
        check(with_values(options, {"npz": __file__}) if "npz" in fields_of(program.options) else options)
        assert values_of(options) == values_of(program.default) | program.preset_values(name)
        assert not program.preset_values(name).keys() & {"out", "seed", "train_table", "data"}
    with pytest.raises(InputError, match=r"^--preset: expected one of small.*\. Received: large$"):
        read_options(program, "train", ["--preset", "large"])
    folder = pathlib.Path(__file__).parents[3] / program.name.replace(".", "/") / "experiments"
    for path in folder.glob("*.yaml"):
        values = read_values("--config", path, program.options)
        annotations = fields_of(program.options)
        home = tmp_path / path.stem
        home.mkdir()
        for name in values:
            # Their files are a user's own.
            if is_file(annotations[name]):
                there = home / values[name]
                there.parent.mkdir(parents=True, exist_ok=True)
                make = there.touch if there.suffix else there.mkdir
                make(exist_ok=True)
        with monkeypatch.context() as context:
            context.chdir(home)
            # `compare` names the models.
            model = {"model": "soft"} if values.get("architecture") == "mcan" else {}
            check(with_values(program.default, values | model))


@every_case
def test_what_the_command_line_does_not_know(case, tmp_path):
    for words in (("--no-such-option", "3"), ("--epochs", "many"), ("--epochs", "1.5"), ("surplus",)):
        status, _, err = case.call("train", "--out", tmp_path / "run", *words)
        assert status == 2 and words[0] in err
    for command in (case.answer, "evaluate", "export"):
        status, _, err = case.call(command)
        assert status == 2 and "--run" in err
    case.fails("Unknown command 'serve': expected one of train, ", "serve")
    assert "Answer" in case.succeeds() or "Turn lines" in case.succeeds("--help")
    assert not (tmp_path / "run").exists()


def test_options_that_do_not_go_together(toy):
    for words, message in (
        (("--warmup-steps", 3, "--schedule", "plateau"), "--warmup-steps: the schedule plateau has no warm-up"),
        (("--jit", "on", "--strategy", "mirrored"), "--jit: a step of several replicas is not compiled"),
        (("--jit", "on", "--strategy", "multi_worker"), "--jit: a step of several replicas is not compiled"),
        (("--epochs", 0), "--epochs: must be greater than 0. Received: 0"),
        (("--clip-norm", "nan"), "--clip-norm: must be a finite number. Received: nan"),
    ):
        toy.fails(message, "train", *words)


def test_workers_that_are_not_named(toy, tmp_path, monkeypatch):
    words = ("--strategy", "multi_worker")
    for text in (None, "", "alpha:1", "{}", "[]", json.dumps({"cluster": {"worker": ["a:1"]}, "task": {"index": 0}})):
        monkeypatch.delenv("TF_CONFIG", raising=False) if text is None else monkeypatch.setenv("TF_CONFIG", text)
        toy.fails("--strategy multi_worker: the variable TF_CONFIG must name the workers and this one", "train", *words)
    config = {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    toy.fails("must name the workers and this one", "train", *words)
    message = "--strategy multi_worker: train such a run by itself"
    toy.fails(message, "compare", "--out", tmp_path / "runs", "--models", toy.other_start, *words)


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
    "7: 8": " names an unknown option: 7. Known: fast, ",
    "deep: {rate: 3}": " names an unknown option: deep. Known: ",
    "preset: first": " names an unknown option: preset. Known: fast, ",
    "units: many": ": units: must be a valid integer, ",
    "units: 1.5": ": units: must be a valid integer, ",
    "units:": ": units: must be a valid integer. Received: None",
    "limit: much": ": limit: must be a valid integer, ",
    "rate: -1": ": rate: must be greater than 0. Received: -1",
    "fast: 2": ": fast: must be a valid boolean, ",
    "model: three": ": model: must be 'one' or 'two'. Received: three",
    "words: a": ": words: must be a valid tuple. Received: a",
    "words: [a, 1]": ": words: must be a valid string. Received: 1",
    "rates: [high]": ": rates: must be a valid number, ",
    "- units": " must hold one option per line, as in `units: 64`.",
    "units: [": " cannot be read: ",
    "words: \x00": " cannot be read: ",
    "units: 2024-13-45": " cannot be read: ",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_an_error_names_the_file_and_the_option(tmp_path, text):
    path = tmp_path / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_values("--config", path, Settings)
    assert str(error.value).startswith(f"--config: {path}{BAD_FILES[text]}")


def test_values_of_a_file(tmp_path):
    """Numbers and lists as they are meant."""
    path = tmp_path / "settings.yaml"
    path.write_text("rate: 1e-3\nlimit: null\nrates: [2, 5e-1]\nmode: none\nunits: 5\nwords: [a, b]\nfast: no\n")
    assert with_values(Settings(), read_values("--config", path, Settings)) == Settings(
        mode="none", units=5, fast=False, words=("a", "b"), deep=Deep(0.001, None, (2.0, 0.5))
    )
    path.write_text("# nothing\n")
    assert read_values("--config", path, Settings) == {}
    path.write_text("\n")
    with pytest.raises(InputError, match=r"--config: .*settings\.yaml is empty; a pipe can be read only once"):
        read_values("--config", path, Settings)


def test_nested_groups_have_one_level_of_names():
    assert list(fields_of(Settings)) == ["model", "mode", "units", "fast", "words", "rate", "limit", "rates"]
    assert values_of(Settings())["rate"] == 0.25 and Deep().rate == 0.5

    @dataclasses.dataclass
    class Twice:
        rate: float = 1.0
        deep: Deep = group(Deep)

    with pytest.raises(TypeError, match="Twice has two options of one name: rate"):
        fields_of(Twice)


def test_the_command_line_the_file_and_the_preset(tmp_path, monkeypatch):
    """In this order."""
    presets = tmp_path / "preset.yaml"
    presets.write_text("units: 8\nlearning_rate: 0.5\nepochs: 3\n")
    (tmp_path / "file.yaml").write_text("learning_rate: 0.25\nepochs: 4\n")
    program = CASES["spotlight"].program
    monkeypatch.setattr(Program, "presets", property(lambda self: {"small": None, "large": presets}))
    words = ["--epochs", "5", f"--config={tmp_path / 'file.yaml'}", "--preset", "large"]
    values = values_of(read_options(program, "train", words))
    assert (values["units"], values["learning_rate"], values["epochs"]) == (8, 0.25, 5)
    with pytest.raises(InputError, match=r"^--config: expected one argument\.$"):
        read_options(program, "train", ["--config"])
