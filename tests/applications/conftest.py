"""What the programs write does not depend on how fast they run."""

import itertools
import types

import pytest

from applications.common import callbacks, progress


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The programs' clock: each look at it takes a millisecond, so that no line of progress falls due."""
    looks = itertools.count()
    stopped = types.SimpleNamespace(monotonic=lambda: next(looks) / 1000)
    for module in (callbacks, progress):
        monkeypatch.setattr(module, "time", stopped)
