"""The lines of progress, by a clock that the test moves."""

import types

import pytest

from applications.common import callbacks, progress


@pytest.fixture
def clock(monkeypatch):
    clock = types.SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    for module in (callbacks, progress):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("seconds", "lines"),
    [
        (0.5, []),
        (2.0, ["read: 3/7, 6 s, 8 s left", "read: 6/7, 12 s, 2 s left"]),
        (7.0, [f"read: {done}/7, {7 * done} s, {7 * (7 - done)} s left" for done in range(1, 8)]),
    ],
)
def test_a_line_of_a_file_once_five_seconds_have_passed(clock, capsys, seconds, lines):
    seen = []
    for item in progress.progress(range(7), "read"):
        seen.append(item)
        clock.now += seconds
    assert seen == list(range(7))
    assert capsys.readouterr().err.splitlines() == lines


def test_items_without_a_length(clock, capsys):
    for _ in progress.progress(iter("ab"), "read"):
        clock.now += 3.0
    assert capsys.readouterr().err.splitlines() == ["read: 2, 6 s"]


def test_a_line_of_a_terminal_that_changes(clock, capsys, monkeypatch):
    """It covers the line before it, and leaves nothing."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    for seconds in progress.progress([9.0, 0.1, 0.2], "read"):
        clock.now += seconds
    first, last = "read: 1/3, 9 s, 18 s left", "read: 3/3, 9 s, 0 s left"
    assert capsys.readouterr().err == f"\r{first}\r{last:{len(first)}}\r{'':{len(last)}}\r"


def test_the_seconds_of_an_epoch_and_of_its_steps(clock):
    """The median of the steps: what stands between them does not enter it."""
    epochs, steps, logs = (
        callbacks.EpochSeconds(types.SimpleNamespace(epoch=0, seconds=10.0)),
        callbacks.StepSeconds(),
        {},
    )
    for callback in (epochs, steps):
        callback.on_epoch_begin(0)
    for seconds in (1.0, 2.0, 9.0):
        clock.now += 5.0
        steps.on_train_batch_begin(0)
        clock.now += seconds
        steps.on_train_batch_end(0)
    for callback in (epochs, steps):
        callback.on_epoch_end(0, logs)
    assert logs == {"seconds": 37.0, "step_seconds": 2.0}
