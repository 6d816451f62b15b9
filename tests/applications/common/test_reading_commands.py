"""Tests the commands that read a run: evaluate, predict and export."""

import errno
import io
import os
import pathlib
import tempfile

import numpy as np
import pytest
import tensorflow as tf
import yaml
from program_case import fewer, written
from run_files import files_of, read_json

from applications.common.training import load_run


def test_evaluate_stores_a_file_for_each_split(toy, copied_toy):
    digests = set()
    for split in ("valid", "test"):
        printed = toy.succeeds("evaluate", "--run", copied_toy, "--split", split)
        record = read_json(copied_toy / f"evaluation_{split}.json")
        assert set(record) == {"split", "data_digest", "data", "report", "options"}
        assert (record["split"], record["options"]["split"]) == (split, split)
        digests.add(record["data_digest"])
        for column in toy.program.application().columns:
            assert f"| {column.title} " in printed and f"| {column.cell([column.value(record)])} " in printed
        assert printed.splitlines()[-1] == f"written: {copied_toy / f'evaluation_{split}.json'}"
    assert len(digests) == 2
    assert read_json(copied_toy / "evaluation_test.json")["report"] == read_json(copied_toy / "metrics.json")["report"]


def test_evaluate_on_other_files(toy, copied_toy, tmp_path):
    path = pathlib.Path(written(toy.evaluated, tmp_path)["data"])
    words, before = ("--run", copied_toy, "--data", path), files_of(copied_toy)
    toy.succeeds("evaluate", *words)
    record = read_json(copied_toy / "evaluation_files.json")
    assert record["split"] is None
    added = {path.name for path in files_of(copied_toy).keys() - before.keys()}
    assert added == {"evaluation_files.json", "evaluation_files.html"}
    toy.succeeds("evaluate", *words, "--name", "again")
    assert read_json(copied_toy / "again.json")["data_digest"] == record["data_digest"]
    path.write_text(fewer(path.read_text()), encoding="utf-8")
    message = f"--name: {copied_toy / 'evaluation_files.json'} is a report on different data; choose another name."
    toy.fails(message, "evaluate", *words)
    assert read_json(copied_toy / "evaluation_files.json") == record


def test_names_of_reports(toy, copied_toy):
    """`evaluate` overwrites reports, but not other files of a run."""
    (copied_toy / "thesis.json").write_text('["mine"]')
    before = files_of(copied_toy)
    for name, message in (
        ("metrics", "--name: this name is reserved for another file of the run"),
        ("../metrics", "--name: must be the name of a file, without a folder"),
        ("thesis", "is not a report; choose another name"),
    ):
        toy.fails(message, "evaluate", "--run", copied_toy, "--name", name)
    assert files_of(copied_toy) == before


def test_a_run_that_has_not_finished_says_so(toy, tmp_path, weights_only):
    toy.succeeds(*toy.train(tmp_path / "run", epochs=1))
    config = tmp_path / "run/config.yaml"
    config.write_text(config.read_text().replace("epochs: 1\n", "epochs: 3\n"))
    status, _, err = toy.call("predict", "--run", tmp_path / "run", standard_input="\n".join(toy.lines).encode())
    assert (status, err) == (0, "the run has not finished: 1 of 3 epochs are done\n")


def test_answers_to_a_file_and_to_standard_input(toy, trained_toy, tmp_path):
    content = "".join(f"{line}\n" for line in toy.lines)
    (tmp_path / "lines.txt").write_text(content, encoding="utf-8")
    answers = toy.succeeds("predict", "--run", trained_toy, "--input", tmp_path / "lines.txt")
    assert len(answers.splitlines()) == len(toy.lines)
    assert answers == toy.succeeds("predict", "--run", trained_toy, standard_input=content.encode())


def test_inputs_and_runs_that_cannot_be_read(toy, trained_toy, tmp_path):
    content, message = toy.unreadable
    toy.fails(message, "predict", "--run", trained_toy, standard_input=content)
    toy.fails("expected at least one line", "predict", "--run", trained_toy, standard_input=b"")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.yaml").write_text("hidden_units: 3\n")
    message = "config.yaml (is it a run of spotlight?) names an unknown option: "
    toy.fails(message, "predict", "--run", tmp_path / "run")


@pytest.mark.slow
def test_a_run_of_an_earlier_version(toy, copied_toy):
    """Options in config.yaml that this version lacks are ignored, unless they changed the model."""
    path = copied_toy / "config.yaml"
    config = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(config | {"picture_every": 3, "data_seed": 0}))
    toy.succeeds("evaluate", "--run", copied_toy)
    toy.succeeds("train", "--resume", "--out", copied_toy)
    path.write_text(yaml.safe_dump(config | {"prior_scale": "paper"}))
    toy.fails(f"{path}: this version has no option prior_scale. Received: paper", "evaluate", "--run", copied_toy)


def test_invalid_values_in_the_config_of_a_run(toy, copied_toy):
    """Commands name config.yaml and the invalid option. `predict` works even if the run's data files are missing."""
    path = copied_toy / "config.yaml"
    config = yaml.safe_load(path.read_text())
    for values, message in (
        ({"units": -3}, "units: must be greater than 0. Received: -3"),
        ({"warmup_steps": 3, "schedule": "plateau"}, "--warmup-steps: the schedule plateau has no warm-up"),
    ):
        path.write_text(yaml.safe_dump(config | values))
        toy.fails(f"{path}: {message}", "evaluate", "--run", copied_toy)
        toy.fails(f"{path}: {message}", "train", "--resume", "--out", copied_toy)
    path.write_text(yaml.safe_dump(config | {"data": "gone.txt"}))
    toy.succeeds("predict", "--run", copied_toy, standard_input=f"{toy.lines[0]}\n".encode())
    toy.fails("gone.txt: no such file", "evaluate", "--run", copied_toy)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", bytes(range(256)), None])
def test_a_codec_that_is_damaged(toy, copied_toy, content):
    path = copied_toy / "codec.json"
    path.unlink() if content is None else path.write_bytes(content)
    toy.fails(f"{path} ", "predict", "--run", copied_toy, standard_input=f"{toy.lines[0]}\n".encode())


@pytest.mark.parametrize("damage", ["cut", "encrypted", "array"])
def test_weights_that_are_damaged(toy, copied_toy, damage):
    path = copied_toy / "weights.npz"
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[:1000]
    elif damage == "encrypted":
        for index in range(len(content) - 4):
            if content[index : index + 4] == b"PK\x01\x02":
                content[index + 8] |= 1
    else:
        file = io.BytesIO()
        np.save(file, np.zeros(3))
        content = file.getvalue()
    path.write_bytes(content)
    toy.fails("weights.npz cannot be read", "predict", "--run", copied_toy, standard_input=b"1\n")


def test_export(toy, copied_toy, tmp_path):
    """`export` replaces a SavedModel, but no folder with other files."""
    for words, path in (((), copied_toy / "saved_model"), (("--out", tmp_path / "served"), tmp_path / "served")):
        printed = toy.succeeds("export", "--run", copied_toy, *words)
        assert printed == f"written: {path}, endpoints predict, serving_default\n"
    steps = np.float32([line.split() for line in toy.lines]).reshape(-1, 6, 4)
    served = tf.saved_model.load(str(tmp_path / "served"))
    model = load_run(toy.program.application(), copied_toy).models.training
    np.testing.assert_allclose(served.predict(steps), model(steps), rtol=1e-5)
    assert set(served.signatures["predict"].structured_input_signature[1]) == {"steps"}
    toy.fails("is not empty and contains no SavedModel", "export", "--run", copied_toy, "--out", copied_toy)


@pytest.fixture
def read_only(monkeypatch):
    """Return a function that makes a folder read-only, even for root."""

    def read_only(folder):
        temporary_file = tempfile.TemporaryFile

        def opened(*arguments, dir=None, **options):
            if pathlib.Path(dir).is_relative_to(folder):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            return temporary_file(*arguments, dir=dir, **options)

        monkeypatch.setattr(tempfile, "TemporaryFile", opened)

    return read_only


def test_a_run_on_a_read_only_disk(toy, copied_toy, tmp_path, read_only, without_pictures):
    """Commands report an unwritable folder before any work; `evaluate` can write into another folder."""
    before, run = files_of(copied_toy), ["--run", copied_toy]
    read_only(copied_toy)
    for words, out in (
        (["evaluate", *run], copied_toy),
        (["train", "--resume", "--out", copied_toy], copied_toy),
        (["compare", "--models", "gaussian", "--out", copied_toy / "deep/out"], copied_toy / "deep/out"),
    ):
        toy.fails(f"--out: {out} cannot be written: Read-only file system. Name another folder.", *words)
    toy.succeeds("evaluate", *run, "--out", tmp_path / "report")
    assert {path.name for path in (tmp_path / "report").iterdir()} == {"evaluation_valid.json", "evaluation_valid.html"}
    assert files_of(copied_toy) == before


def test_metrics_are_printed_even_if_they_cannot_be_written(toy, copied_toy, monkeypatch):
    def fsync(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    status, out, err = toy.call("evaluate", "--run", copied_toy)
    assert status == 4 and "| accuracy" in out
    assert err == f"error: [Errno 28] No space left on device: '{copied_toy / 'evaluation_valid.json'}'\n"
