"""For all programs: a clock, so that what they write does not depend on how fast they run, and eager execution."""

import itertools
import types

import pytest
import tensorflow as tf

from applications.common import callbacks, checkpoint, progress


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The programs' clock: each look at it takes a millisecond, so that no line of progress falls due."""
    looks = itertools.count()
    stopped = types.SimpleNamespace(monotonic=lambda: next(looks) / 1000)
    for module in (callbacks, checkpoint, progress):
        monkeypatch.setattr(module, "time", stopped)


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
