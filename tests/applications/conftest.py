"""For all programs: runs that are trained once for all tests that only read them, a clock, so that what they write does
not depend on how fast they run, no waiting for the disk, and eager execution."""

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
    """The programs' clock: each look at it takes a millisecond, so that no line of progress falls due."""
    looks = itertools.count()
    stopped = types.SimpleNamespace(monotonic=lambda: next(looks) / 1000, process_time=time.process_time)
    for module in (callbacks, checkpoint, progress):
        monkeypatch.setattr(module, "time", stopped)


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """A run writes some fifty files, each of which waits for the disk: most of the time of a run of this size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def little_to_pretrain_on():
    """A vocabulary of a few sentences: that of all takes longer than the tests that use it."""
    with pytest.MonkeyPatch.context() as patch:
        sentences = list(itertools.chain(*python_topics.topics().values()))[:400]
        patch.setattr(pretraining, "pretraining_sentences", lambda: sentences)
        yield


BUNDLE = page.bundle


@pytest.fixture(scope="session", autouse=True)
def without_the_bundle():
    """Vega takes more than a second to be bundled, and a browser alone runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "bundle", lambda: "// Vega")
        yield


@pytest.fixture(scope="session", autouse=True)
def few_draws():
    """Two behind the standard deviations of report.html, instead of 16."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module("applications.graphs.report"), "NUM_DRAWS", 2)
        yield


@pytest.fixture
def with_the_bundle(monkeypatch):
    monkeypatch.setattr(page, "bundle", BUNDLE)


@dataclasses.dataclass
class Trained:
    """A finished run, and what its training printed."""

    path: pathlib.Path
    output: str


@pytest.fixture(scope="session")
def once_per_session(tmp_path_factory):
    """Returns what a function makes, JSON, once for the processes of this test session: the others wait for it."""
    results = {}

    def once_per_session(name, make):
        if name not in results:
            base = tmp_path_factory.getbasetemp()
            # Of the processes of one session only the folders above their own are the same.
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
    """Returns the `Trained` of a case, which may be that of another process."""

    def run_of(case):
        def make():
            path = str(tmp_path_factory.mktemp(case.name) / "run")
            # Without a SavedModel, half of the time of a run: `exported_by` writes one.
            return path, case.succeeds(*case.train(path, export=case.name == TOY))

        path, output = once_per_session(case.name, make)
        return Trained(pathlib.Path(path), output)

    return run_of


@pytest.fixture(scope="session")
def exported_by(once_per_session, run_of, tmp_path_factory):
    """Returns the folder of a SavedModel of a case's run, which may be that of another process."""

    def exported_by(case):
        def make():
            path = str(tmp_path_factory.mktemp(case.name) / "saved_model")
            case.succeeds("export", "--run", run_of(case).path, "--out", path)
            return path

        return pathlib.Path(once_per_session(f"{case.name}-exported", make))

    return exported_by


@pytest.fixture
def weights_only(monkeypatch):
    """Leaves the report out of a run."""
    monkeypatch.setattr(training.TrainingRun, "finish", lambda run: None)


@pytest.fixture
def eagerly():
    """Runs every tf.function step by step: at these sizes much faster than to trace it."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def pytest_collection_modifyitems(items):
    for item in items:
        if "eagerly" in getattr(item, "fixturenames", ()):
            # Datasets stay graphs where everything else is run step by step.
            item.add_marker(
                pytest.mark.filterwarnings(
                    "ignore:Even though the `tf.config.experimental_run_functions_eagerly`:UserWarning"
                )
            )
