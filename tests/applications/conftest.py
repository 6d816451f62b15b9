"""Fixtures for all programs: shared trained runs, a simulated clock, no disk flushes, and eager execution."""

import dataclasses
import fcntl
import importlib
import itertools
import json
import os
import pathlib
import time
import types

import pytest
import tensorflow as tf
from program_cases import TOY

from applications.common import callbacks, checkpoint, page, progress, training
from applications.common.runs import write_json
from applications.finetuning import pretraining
from applications.text import python_topics


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Simulate the clock: each call adds 1 ms, so no progress line is due and output does not depend on speed."""
    looks = itertools.count()
    stopped = types.SimpleNamespace(monotonic=lambda: next(looks) / 1000, process_time=time.process_time)
    for module in (callbacks, checkpoint, progress):
        monkeypatch.setattr(module, "time", stopped)


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """Skip `fsync`, because flushing the fifty files of a tiny run to disk would take most of its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def little_to_pretrain_on():
    """Pretrain on 400 sentences, because the vocabulary of all sentences would take longer than the tests."""
    with pytest.MonkeyPatch.context() as patch:
        sentences = list(itertools.chain(*python_topics.topics().values()))[:400]
        patch.setattr(pretraining, "pretraining_sentences", lambda: sentences)
        yield


BUNDLE = page.bundle


@pytest.fixture(scope="session", autouse=True)
def without_the_bundle():
    """Replace the Vega bundle, which only browser tests need and which takes more than a second to build."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "bundle", lambda: "// Vega")
        yield


@pytest.fixture(scope="session", autouse=True)
def few_draws():
    """Use 2 draws instead of 16 for the standard deviations in report.html of graphs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module("applications.graphs.report"), "NUM_DRAWS", 2)
        yield


@pytest.fixture
def with_the_bundle(monkeypatch):
    monkeypatch.setattr(page, "bundle", BUNDLE)


@dataclasses.dataclass
class Trained:
    """The path of a finished run and the output of its training."""

    path: pathlib.Path
    output: str


@pytest.fixture(scope="session")
def once_per_session(tmp_path_factory):
    """Return a function that computes a JSON value in one process of the session, while other processes wait for it."""
    results = {}

    def once_per_session(name, make):
        if name not in results:
            base = tmp_path_factory.getbasetemp()
            # Processes of one session share only the parent of their temporary folders.
            shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"{name}.json"
            with shared.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not shared.exists():
                    write_json(shared, make())
            results[name] = json.loads(shared.read_text(encoding="utf-8"))
        return results[name]

    return once_per_session


@pytest.fixture(scope="session")
def run_of(once_per_session, tmp_path_factory):
    """Return a function that trains the run of a case once per session, in any process, and returns its `Trained`."""

    def run_of(case):
        def make():
            path = str(tmp_path_factory.mktemp(case.name) / "run")
            # Exporting takes half of the time: except for the toy, only `exported_by` writes a SavedModel.
            return path, case.succeeds(*case.train(path, export=case.name == TOY))

        path, output = once_per_session(case.name, make)
        return Trained(pathlib.Path(path), output)

    return run_of


@pytest.fixture(scope="session")
def exported_by(once_per_session, run_of, tmp_path_factory):
    """Return a function that exports the run of a case once per session and returns the SavedModel's folder."""

    def exported_by(case):
        def make():
            path = str(tmp_path_factory.mktemp(case.name) / "saved_model")
            case.succeeds("export", "--run", run_of(case).path, "--out", path)
            return path

        return pathlib.Path(once_per_session(f"{case.name}-exported", make))

    return exported_by


@pytest.fixture
def weights_only(monkeypatch):
    """Train without writing a report."""
    monkeypatch.setattr(training.TrainingRun, "finish", lambda run: None)


@pytest.fixture
def eagerly():
    """Run every tf.function eagerly, because tracing takes longer than running a tiny model."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def pytest_collection_modifyitems(items):
    for item in items:
        if "eagerly" in getattr(item, "fixturenames", ()):
            # Datasets stay graphs even in eager execution, and TensorFlow warns about this.
            item.add_marker(
                pytest.mark.filterwarnings(
                    "ignore:Even though the `tf.config.experimental_run_functions_eagerly`:UserWarning"
                )
            )
