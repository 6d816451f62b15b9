import dataclasses
import errno
import json
import os
import pathlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
import yaml

from applications.common import runs
from applications.common.environment import environment_record
from applications.common.errors import InputError
from applications.common.runs import WEIGHTS, RunFolder, digest_of
from applications.common.writers import unlock

CONFIG = {
    "name": "ved",
    "hidden_units": 8,
    "rates": [1e-3, 1e-4],
    "epochs": 5,
    "note": None,
}


@pytest.fixture(autouse=True)
def unlocked():
    yield
    unlock()


def full_disk(monkeypatch):
    """Make every flush to the disk fail, after the bytes are written."""

    def fsync(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)


def test_open_and_load(tmp_path):
    folder = RunFolder.open(tmp_path / "deep" / "run", CONFIG)
    assert folder.config == CONFIG
    assert yaml.safe_load((folder.path / "config.yaml").read_text(encoding="utf-8")) == CONFIG
    assert RunFolder.load(folder.path).config == CONFIG
    assert folder.file("plots/a.png").parent.is_dir()


def test_options_may_be_tuples_paths_and_data_classes(tmp_path):
    @dataclasses.dataclass
    class Options:
        sizes: tuple = (1, 2)
        data: pathlib.Path = pathlib.Path("data")
        rate: float = 1e-5
        name: str = "Zürich 年"
        limit: float = float("nan")

    RunFolder.open(tmp_path / "run", {"options": Options()})
    stored = RunFolder.load(tmp_path / "run").config["options"]
    assert (stored["sizes"], stored["rate"], stored["name"]) == ([1, 2], 1e-5, "Zürich 年")


def test_other_options_are_named_with_both_values(tmp_path):
    RunFolder.open(tmp_path, CONFIG)
    unlock()
    other = {**CONFIG, "hidden_units": 16, "rates": [1e-3], "seed": 3}
    del other["note"]
    with pytest.raises(InputError) as error:
        RunFolder.open(tmp_path, other, resume=True)
    assert str(error.value).partition("omit these options: ")[2].split("; ") == [
        "hidden_units: 8 in the folder, 16 requested",
        "rates: [0.001, 0.0001] in the folder, [0.001] requested",
        "note: None in the folder, nothing requested",
        "seed: nothing in the folder, 3 requested",
    ]
    assert RunFolder.load(tmp_path).config == CONFIG
    unlock()
    RunFolder.open(tmp_path, {**CONFIG, "epochs": 9}, resume=True, may_differ=("epochs",))
    assert RunFolder.load(tmp_path).config["epochs"] == 9


def test_invalid_run_folders(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InputError, match=r"no config\.yaml"):
            RunFolder.load(path)
        with pytest.raises(InputError, match="no run to resume"):
            RunFolder.check(path, CONFIG, resume=True)
    assert not (tmp_path / "missing").exists()
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty and contains no run"):
        RunFolder.open(tmp_path, CONFIG)
    with pytest.raises(InputError, match=r"thesis\.txt"):
        RunFolder.open(tmp_path / "thesis.txt", CONFIG)
    for text in ("a: [", "just words", "\x00", "a: 2024-13-45"):
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(InputError, match=r"config\.yaml"):
            RunFolder.load(tmp_path)


def test_a_full_disk_is_an_input_error_when_the_run_starts(tmp_path, monkeypatch):
    full_disk(monkeypatch)
    with pytest.raises(InputError, match="No space left"):
        RunFolder.open(tmp_path, CONFIG)
    assert not list(tmp_path.iterdir())


def test_the_contents_of_a_run_folder(tmp_path):
    """A run folder returns its number of epochs, and raises an error if its data changed or its weights are missing."""
    folder = RunFolder.open(tmp_path, CONFIG)
    assert not folder.has_data() and folder.num_epochs() == 0
    folder.require_data(digest_of("anything"))
    folder.remember_data(digest_of("data"))
    folder.require_data(digest_of("data"))
    with pytest.raises(InputError, match="the data have changed since this run was trained"):
        folder.require_data(digest_of("others"))
    with pytest.raises(InputError, match=r"no epoch is finished, so weights\.npz is missing"):
        folder.require_weights()
    (tmp_path / WEIGHTS).write_bytes(b"")
    folder.require_weights()
    (tmp_path / "history.csv").write_text("epoch,loss\n1,2.0\n2,1.0\n")
    assert folder.num_epochs() == 2
    for text in ("loss\n1\n", "epoch,loss\n1,2,3\n", "epoch,loss\n,3\n", "epoch,loss\n1,much\n", "epoch\n\0\n"):
        (tmp_path / "history.csv").write_text(text)
        with pytest.raises(InputError, match=r"history\.csv is damaged"):
            folder.num_epochs()


def test_digests():
    """Digests depend on values, types, arrays and attribute names, but not on the order of a set."""

    @dataclasses.dataclass
    class Part:
        x: object
        y: object = None

    values = [
        None, 0, 0.0, "", "0", True, [0], [[0]], [0, 0], ["ab", "c"], ["a", "bc"], {"a": 0}, {"b": 0}, {"a": [0]},
        np.zeros(2), np.zeros(2, "float32"), np.zeros((1, 2)), np.ones(2), [np.zeros(1), np.zeros(1)],
        Part(0), Part(1), Part(None, 0),
    ]  # fmt: skip
    digests = [digest_of(value) for value in values]
    assert len(set(digests)) == len(values)
    assert [digest_of(value) for value in values] == digests
    assert digest_of((0, 0)) == digest_of([0, 0])
    assert digest_of({"b", "a", "c"}) == digest_of({"c", "b", "a"})
    assert digest_of(np.arange(6).reshape(2, 3).T) == digest_of(np.arange(6).reshape(2, 3).T.copy())
    with pytest.raises(TypeError, match="must consist of plain values and arrays"):
        digest_of([object()])


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    runs.write_text_atomically(path, "old")
    full_disk(monkeypatch)
    with pytest.raises(OSError) as error:
        runs.write_text_atomically(path, "new")
    assert error.value.errno == errno.ENOSPC
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_json(tmp_path):
    path = tmp_path / "metrics.json"
    value = {"bleu": np.float32(0.5), "rows": np.arange(3), "bad": [float("nan"), np.inf], "name": "é", "shape": (2, 3)}
    runs.write_json(path, value)
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "bleu": 0.5,
        "rows": [0, 1, 2],
        "bad": [None, None],
        "name": "é",
        "shape": [2, 3],
    }


def test_environment(monkeypatch, tmp_path):
    record = environment_record()
    assert record["keras"] == keras.__version__
    assert record["tensorflow"] == tf.__version__
    assert record["commit"] is None or re.fullmatch("[0-9a-f]{40}", record["commit"])
    assert not any(os.sep in str(value) for value in record.values())
    json.dumps(record)
    monkeypatch.setenv("PATH", str(tmp_path))
    record = environment_record()
    assert (record["commit"], record["uncommitted_changes"]) == (None, None)
