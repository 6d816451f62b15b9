"""Reads and compares the files of a run."""

import csv
import json
import pathlib

import numpy as np
import pytest


def read_json(path):
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def read_history(folder):
    """Return the rows of a run's history."""
    with open(pathlib.Path(folder, "history.csv"), encoding="utf-8", newline="") as file:
        return [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]


def without_time(rows):
    """Return rows of a history without their times."""
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in rows]


def read_arrays(path):
    """Return the arrays in an .npz file, with text as str."""
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def read_checkpoint(folder):
    """Return the record and the arrays of a run's checkpoint."""
    arrays = read_arrays(pathlib.Path(folder, "checkpoints", "checkpoint.npz"))
    return json.loads(arrays.pop("record").tobytes()), arrays


def files_of(folder):
    """Return a dictionary from the files in a folder to their modification times."""
    return {path: path.stat().st_mtime_ns for path in pathlib.Path(folder).rglob("*")}


def assert_same_run(one, other, rounding=0.0):
    """Assert that two runs have equal weights, optimizers, seeds, metrics and (up to rounding and times) histories."""
    (record, arrays), (other_record, other_arrays) = (read_checkpoint(folder) for folder in (one, other))
    for row, other_row in zip(without_time(record["rows"]), without_time(other_record["rows"]), strict=True):
        assert row == pytest.approx(other_row, rel=rounding, abs=0.0)
    assert (record["epoch"], record["step"]) == (other_record["epoch"], other_record["step"])
    assert len(record["variables"]) == len(other_record["variables"])
    assert arrays.keys() == other_arrays.keys()
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], other_arrays[name], err_msg=name)
    weights, other_weights = (read_arrays(folder / "weights.npz") for folder in (one, other))
    for name in weights.keys() - {"record"}:  # the record contains times
        np.testing.assert_array_equal(weights[name], other_weights[name], err_msg=name)
    for row, other_row in zip(*(without_time(read_history(x)) for x in (one, other)), strict=True):
        assert row == pytest.approx(other_row, rel=rounding, abs=0.0)
