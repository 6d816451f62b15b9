import dataclasses
import io
import pathlib
import runpy
import sys
import types

import pytest
import yaml
from ved_cases import PAIRS, SOURCES, arguments_of, call, small_options, write_table

from applications.ved import training
from applications.ved.__main__ import COMMANDS

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def no_training(monkeypatch):
    def fit(*arguments):
        raise AssertionError("the run has begun")

    monkeypatch.setattr(training, "_fit", fit)


def lines_of(pairs, column):
    return "".join(f"{pair[column]}\n" for pair in pairs).encode()


def parallel(sources, targets):
    """Return a function that writes two files and says which options name them."""

    def write(folder):
        for name, content in (("a.source", sources), ("a.target", targets)):
            if content is not None:
                (folder / name).write_bytes(content)
        return {"train_table": None, "train_source": str(folder / "a.source"), "train_target": str(folder / "a.target")}

    return write


def table(content, name="a.tsv"):
    def write(folder):
        (folder / name).write_bytes(content)
        return {"train_table": str(folder / name)}

    return write


def changed(**options):
    return lambda folder: options


GOOD = lines_of(PAIRS, 0), lines_of(PAIRS, 1)
BAD_TRAINING = {
    "missing file": (parallel(None, GOOD[1]), "a.source: no such file"),
    "missing table": (changed(train_table="none.tsv"), "none.tsv: no such file"),
    "empty file": (parallel(b"", GOOD[1]), "a.source: the file is empty"),
    "unequal line counts": (parallel(GOOD[0], lines_of(PAIRS[1:], 1)), "64 lines and"),
    "missing column": (changed(target_column="question"), "train.tsv:1: no column named 'question'"),
    "not UTF-8": (
        parallel(GOOD[0].replace(b"kenya", b"ken\xffya", 1), GOOD[1]),
        "a.source:1: bytes that are not UTF-8",
    ),
    "empty side": (parallel(GOOD[0], b"\n" + lines_of(PAIRS[1:], 1)), "a.target:1: an empty sentence"),
    "not a gzip file": (table(b"source\ttarget\n", "a.tsv.gz"), "a.tsv.gz: not a whole gzip file"),
    "neither CSV nor TSV": (table(b"source\ttarget\na\tb\n", "a.txt"), "a.txt: a table's name must end in"),
    "ragged row": (table(b"source\ttarget\na\tb\nc\n"), "a.tsv:3: 1 fields"),
    "source without target": (changed(train_table=None, train_source="a"), "--train-source and --train-target belong"),
    "table and source": (changed(train_source="a", train_target="b"), "--train-table and --train-source exclude"),
    "test without train": (changed(train_table=None, test_table="train.tsv"), "train.tsv"),
    "unknown row": (changed(row="seq2seq"), "--row: expected one of ded, "),
    "unknown group column": (changed(group_column="article"), "train.tsv:1: no column named 'article'"),
    "too few groups": (
        table(b"source\ttarget\n" + b"one source\ta target\n" * 5),
        "give a separate validation file, or another group column",
    ),
    "units": (changed(units=0), "--units: must be positive"),
    "learning rate": (changed(learning_rate=float("nan")), "--learning-rate: must be finite"),
    "annealing": (changed(annealing_end=0.0), "--annealing-end: must be positive"),
    "words without embeddings": (changed(embeddings_words="words.txt"), "--embeddings-words is given without"),
    "missing embeddings": (changed(embeddings="vectors.txt"), "vectors.txt: no such file"),
    "stages": (changed(row="ved_dattn_2stage", epochs=1), "--epochs: ved_dattn_2stage needs more epochs"),
}


def assert_fails(result, message, status=2):
    assert result[0] == status, result
    assert result[2].startswith("error: ") and result[2].count("\n") == 1, result[2]
    assert message in result[2]


@pytest.mark.parametrize("case", BAD_TRAINING)
def test_bad_input_stops_before_anything_is_written(tmp_path, case):
    change, message = BAD_TRAINING[case]
    options = small_options(tmp_path)
    result = call("train", *arguments_of(dataclasses.replace(options, **change(tmp_path))))
    assert_fails(result, message)
    assert not (tmp_path / "run").exists()


def test_unknown_options_and_values_of_another_type(tmp_path):
    for arguments in (["--unit", "3"], ["--units", "many"], ["surplus"]):
        status, _, errors = call("train", "--out", tmp_path / "run", *arguments)
        assert status == 2 and arguments[-2 if len(arguments) > 1 else 0].lstrip("-") in errors
    assert not (tmp_path / "run").exists()


def test_an_unknown_preset(tmp_path):
    result = call("train", "--out", tmp_path / "run", "--preset", "large")
    assert_fails(result, "--preset: expected one of small, paper, paper_dialogue. Received: large")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_of_options_that_cannot_be(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    assert_fails(call(command, "--config", "a.yaml"), "--config: a.yaml cannot be read")
    (tmp_path / "a.yaml").write_text("temperature: 3\n")
    assert_fails(call(command, "--config", "a.yaml"), "--config: a.yaml names unknown options: temperature. Known: ")
    assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"]


def test_commands_and_help():
    status, output, _ = call()
    assert status == 0 and all(name in output for name in ("train", "evaluate", "generate", "compare", "export"))
    assert_fails(call("serve"), "Unknown command 'serve': expected one of train, ")
    for command, option in (("train", "--word-dropout"), ("generate", "--num-samples"), ("compare", "--baseline")):
        status, output, _ = call(command, "--help")
        assert status == 0 and option in output
    status, _, errors = call("generate")
    assert status == 2 and "--run" in errors


def test_folders(tmp_path):
    options = small_options(tmp_path)
    out = tmp_path / "run"
    assert_fails(call("train", *arguments_of(options), "--resume"), "There is no run to resume")
    assert not out.exists()
    out.mkdir()
    (out / "thesis.tex").write_text("my thesis")
    assert_fails(call("train", *arguments_of(options)), "is not empty and holds no run")
    assert [path.name for path in out.iterdir()] == ["thesis.tex"]
    assert_fails(call("train", *arguments_of(dataclasses.replace(options, out=str(out / "thesis.tex")))), "thesis.tex")


def test_a_folder_with_another_run(trained):
    before = {path: path.stat().st_mtime_ns for path in trained.path.rglob("*")}
    options = dataclasses.replace(trained.options, units=9, gamma_a=0.2)
    for more in ([], ["--resume"]):
        result = call("train", *arguments_of(options), *more)
        assert_fails(result, "units: 8 in the folder, 9 asked for; gamma_a: 0.1 in the folder, 0.2 asked for")
    assert_fails(call("train", *arguments_of(trained.options)), "holds a run already. Resume it")
    assert {path: path.stat().st_mtime_ns for path in trained.path.rglob("*")} == before


@pytest.mark.parametrize(
    "command, arguments, message",
    [
        ("evaluate", ["--latent-temperatures", "1", "-0.5"], "--latent-temperatures: must be at least 0"),
        ("evaluate", ["--latent-temperatures", "nan"], "--latent-temperatures: must be at least 0"),
        ("evaluate", ["--word-temperatures", "0"], "--word-temperatures: must be positive"),
        ("evaluate", ["--max-sources", "0"], "--max-sources: must be positive"),
        ("evaluate", ["--name", "../metrics"], "--name: must name a file"),
        ("evaluate", ["--name", "curves"], "--name: must name a file"),
        ("evaluate", ["--split", "test"], "--split: this run has no test pairs"),
        ("evaluate", ["--split", "train"], "--split: expected valid or test. Received: train"),
        ("generate", ["--num-samples", "-1"], "--num-samples: must be at least 0"),
        ("generate", ["--num-beams", "0"], "--num-beams: must be positive"),
        ("generate", ["--num-beams", "3", "--num-samples", "2"], "--num-beams: draws are decoded greedily"),
        ("generate", ["--num-beams", "3", "--length-penalty", "nan"], "--length-penalty: must be at least 0"),
        ("generate", ["--seed", str(2**31)], "--seed: must be an integer of 32 bits"),
        ("generate", ["--input", "none.txt"], "none.txt: no such file"),
    ],
)
def test_bad_input_to_the_commands_that_read_a_run(trained, command, arguments, message):
    before = {path.name for path in trained.path.iterdir()}
    assert_fails(call(command, "--run", trained.path, *arguments), message)
    assert {path.name for path in trained.path.iterdir()} == before


@pytest.mark.parametrize("command", ["evaluate", "generate", "export"])
def test_a_folder_that_is_no_run(tmp_path, command):
    (tmp_path / "sources.txt").write_text(f"{SOURCES[0]}\n")
    more = ["--input", tmp_path / "sources.txt"] if command == "generate" else []
    assert_fails(call(command, "--run", tmp_path / "none", *more), "is not the folder of a run")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"hidden_units": 3}))
    assert_fails(call(command, "--run", tmp_path, *more), "config.yaml does not hold the options of train")
    assert not (tmp_path / "none").exists()


def test_export_spares_a_folder_with_something_else(trained, tmp_path):
    (tmp_path / "thesis.tex").write_text("my thesis")
    assert_fails(call("export", "--run", trained.path, "--out", tmp_path), "is not empty and holds no SavedModel")


def test_input_of_generate(trained, tmp_path, monkeypatch):
    for content, message in ((b"", "there is no line"), (b"fine\n\xff\n", "standard input:2: the line is not UTF-8")):
        monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(content)))
        assert_fails(call("generate", "--run", trained.path), message)
    (tmp_path / "a.txt").write_bytes(b"fine\n\xff\n")
    assert_fails(call("generate", "--run", trained.path, "--input", tmp_path / "a.txt"), "a.txt:2: bytes that are not")


def test_a_skipped_row_is_counted(tmp_path, monkeypatch):
    class Stop(Exception):
        pass

    def fit(options, folder, codec, splits, encoded, matrices):
        assert encoded["train"].report["skipped"] == 1
        raise Stop

    monkeypatch.setattr(training, "_fit", fit)
    write_table(tmp_path / "train.tsv", [*PAIRS, ("no target", "")])
    options = small_options(tmp_path)
    assert_fails(call("train", *arguments_of(options)), "train.tsv:66: an empty sentence or field")
    with pytest.raises(Stop):
        call("train", *arguments_of(dataclasses.replace(options, skip_invalid=True)))


def test_the_program_exits_with_the_status(tmp_path, monkeypatch, capsys):
    arguments = ["train", "--out", str(tmp_path / "new"), "--train-table", "missing.tsv"]
    monkeypatch.setattr(sys, "argv", ["ved", *arguments])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(ROOT / "applications" / "ved" / "__main__.py"), run_name="__main__")
    assert stop.value.code == 2
    assert capsys.readouterr().err == "error: missing.tsv: no such file\n"
    assert not (tmp_path / "new").exists()
