"""For all programs: runs that are trained once for all tests that only read them, a clock, so that what they write does
not depend on how fast they run, no waiting for the disk, and eager execution."""

import dataclasses
import itertools
import json
import os
import pathlib
import types

import pytest
import tensorflow as tf
from program_cases import TOY

from applications.common import callbacks, checkpoint, progress
from applications.common.runs import write_json
from applications.finetuning import pretraining
from applications.text import python_topics


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The programs' clock: each look at it takes a millisecond, so that no line of progress falls due."""
    looks = itertools.count()
    stopped = types.SimpleNamespace(monotonic=lambda: next(looks) / 1000)
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


@dataclasses.dataclass
class Trained:
    """A finished run, and what its training printed."""

    path: pathlib.Path
    output: str


@pytest.fixture(scope="session")
def run_of(tmp_path_factory):
    """Returns the `Trained` of a case, which may be that of another process of this test session."""
    known = {}

    def run_of(case):
        if case.name not in known:
            base = tmp_path_factory.getbasetemp()
            # Of the processes of one session only the folders above their own are the same.
            shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"{case.name}.json"
            if shared.exists():
                path, output = json.loads(shared.read_text(encoding="utf-8"))
            else:
                path = str(tmp_path_factory.mktemp(case.name) / "run")
                # Without a SavedModel, half of the time of a run: `exported_by` writes one.
                output = case.succeeds(*case.train(path, export=case.name == TOY))
                write_json(shared, [path, output])
            known[case.name] = Trained(pathlib.Path(path), output)
        return known[case.name]

    return run_of


@pytest.fixture(scope="session")
def exported_by(run_of, tmp_path_factory):
    """Returns the folder of a SavedModel of a case's run, written by this process."""
    known = {}

    def exported_by(case):
        if case.name not in known:
            known[case.name] = tmp_path_factory.mktemp(case.name) / "saved_model"
            case.succeeds("export", "--run", run_of(case).path, "--out", known[case.name])
        return known[case.name]

    return exported_by


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
