import dataclasses

import pytest

from applications.common.command_line import read_file, read_options
from applications.common.errors import InputError


@dataclasses.dataclass
class Settings:
    """Settings of a program that must be given a name."""

    name: str
    units: int = 3
    rate: float = 0.5
    fast: bool = True
    limit: int | None = 7
    words: tuple[str, ...] = ()
    rates: tuple[float, ...] = (0.1,)


@pytest.fixture
def write(tmp_path):
    def write(text):
        (tmp_path / "settings.yaml").write_text(text, encoding="utf-8")
        return str(tmp_path / "settings.yaml")

    return write


def read(*arguments, presets=None):
    return read_options("program", Settings, presets, list(arguments))


def test_the_class_then_the_file_then_the_command_line(write):
    file = write("name: file\nunits: 4\nrate: 1e-3\nlimit:\nfast: false\nwords: [a, b]\nrates: [2, 5e-1]\n")
    of_the_file = Settings("file", 4, 0.001, False, None, ("a", "b"), (2.0, 0.5))
    assert read("--config", file) == of_the_file
    assert read("--units", "9", f"--config={file}", "--rates", "3") == dataclasses.replace(
        of_the_file, units=9, rates=(3.0,)
    )
    assert read("--name", "line", "--config", write("units: 4")) == Settings("line", units=4)
    assert read("--name", "line", "--config", write("# nothing")) == read("--name", "line") == Settings("line")


def test_a_preset_comes_before_the_file(write):
    presets = {"first": Settings("first"), "second": Settings("second", units=8, words=("x",))}
    assert read(presets=presets) == presets["first"]
    options = read("--config", write("rate: 2"), "--preset", "second", presets=presets)
    assert options == Settings("second", units=8, rate=2.0, words=("x",))
    with pytest.raises(InputError, match=r"^--preset: expected one of first, second\. Received: third$"):
        read("--preset", "third", presets=presets)


def test_what_neither_the_file_nor_the_command_line_has_is_asked_for(write, capsys):
    with pytest.raises(SystemExit) as stop:
        read("--config", write("units: 4"))
    assert stop.value.code == 2 and "--name" in capsys.readouterr().err


BAD_FILES = {
    "unit: 3": " names unknown options: unit. Known: fast, limit, name, rate, rates, units, words",
    "units: 3\nunit: 3\n7: 8": " names unknown options: unit, 7. Known: fast, ",
    "preset: first": " names unknown options: preset. Known: fast, ",
    "units: many": ": units: expected int. Received: 'many'",
    "units: 1.5": ": units: expected int. Received: 1.5",
    "units: true": ": units: expected int. Received: True",
    "units:": ": units: expected int. Received: None",
    "limit: none": ": limit: expected int or nothing. Received: 'none'",
    "rate: fast": ": rate: expected float. Received: 'fast'",
    "fast: 1": ": fast: expected bool. Received: 1",
    "name: [a]": ": name: expected str. Received: ['a']",
    "words: a": ": words: expected a list of str. Received: 'a'",
    "words: [a, 1]": ": words: expected str. Received: 1",
    "rates: [high]": ": rates: expected float. Received: 'high'",
    "- units": " must hold one option per line, as in `units: 64`.",
    "units: [": " cannot be read: ",
    "name: \x00": " cannot be read: ",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_an_error_names_the_option_and_the_file(write, text):
    file = write(text)
    with pytest.raises(InputError) as error:
        read("--config", file)
    assert str(error.value).startswith(f"--config: {file}{BAD_FILES[text]}")
    with pytest.raises(InputError) as error:
        read_file("--options", file, Settings("a"))
    assert str(error.value).startswith(f"--options: {file}{BAD_FILES[text]}")


def test_a_file_that_there_is_not(tmp_path):
    with pytest.raises(InputError, match=r"^--config: .*none\.yaml cannot be read: .*No such file"):
        read("--config", str(tmp_path / "none.yaml"))
    with pytest.raises(InputError, match=r"^--config: expected one argument\.$"):
        read("--config")
