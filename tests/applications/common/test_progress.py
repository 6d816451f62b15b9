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
        (2.0, ["read: 3/7, 6 s", "read: 6/7, 12 s"]),
        (7.0, [f"read: {done}/7, {7 * done} s" for done in range(1, 8)]),
    ],
)
def test_a_line_once_five_seconds_have_passed(clock, capsys, seconds, lines):
    seen = []
    for item in progress.progress(range(7), "read"):
        seen.append(item)
        clock.now += seconds
    assert seen == list(range(7))
    assert capsys.readouterr().err.splitlines() == lines


def test_items_without_a_length(clock, capsys):
    for _ in progress.progress(iter("ab"), "read", every_seconds=3.0):
        clock.now += 2.0
    assert capsys.readouterr().err.splitlines() == ["read: 2, 4 s"]


def test_the_steps_of_an_epoch(clock, capsys):
    callback = callbacks.StepProgress(every_seconds=10.0)
    callback.set_params({"steps": 4})
    for epoch in range(2):
        callback.on_epoch_begin(epoch)
        for batch in range(4):
            clock.now += 6.0
            callback.on_train_batch_end(batch, {"loss": 0.5 + batch})
    assert capsys.readouterr().err.splitlines() == [
        f"epoch {epoch}: step {step}/4, loss {step - 0.5:.4f}" for epoch in (1, 2) for step in (2, 4)
    ]


def test_the_seconds_of_an_epoch_and_of_its_steps(clock):
    """The median of the steps: what stands between them does not enter it."""
    epochs, steps, logs = callbacks.EpochSeconds(), callbacks.StepSeconds(), {}
    for callback in (epochs, steps):
        callback.on_epoch_begin(0)
    for seconds in (1.0, 2.0, 9.0):
        clock.now += 5.0
        steps.on_train_batch_begin(0)
        clock.now += seconds
        steps.on_train_batch_end(0)
    for callback in (epochs, steps):
        callback.on_epoch_end(0, logs)
    assert logs == {"seconds": 27.0, "step_seconds": 2.0}
