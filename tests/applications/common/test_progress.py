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
    for _ in progress.progress(iter("ab"), "read", every_seconds=3.0):
        clock.now += 2.0
    assert capsys.readouterr().err.splitlines() == ["read: 2, 4 s"]


def test_a_line_of_a_terminal_that_changes(clock, capsys, monkeypatch):
    """It covers the line before it, and leaves nothing."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    for seconds in progress.progress([9.0, 0.1, 0.2], "read"):
        clock.now += seconds
    first, last = "read: 1/3, 9 s, 18 s left", "read: 3/3, 9 s, 0 s left"
    assert capsys.readouterr().err == f"\r{first}\r{last:{len(first)}}\r{'':{len(last)}}\r"


def test_the_steps_of_an_epoch(clock, capsys):
    """Counted from the first step of the epoch, where a resumed run has not taken it."""
    checkpoint = types.SimpleNamespace(epoch=1, step=2)
    callback = callbacks.StepProgress(checkpoint, num_steps=6, every_seconds=10.0)
    callback.on_epoch_begin(1)
    for batch in range(4):
        clock.now += 6.0
        checkpoint.step += 1
        callback.on_train_batch_end(batch, {"loss": 0.5 + batch})
    assert capsys.readouterr().err.splitlines() == [
        "epoch 2: step 4/6, loss 1.5000, 12 s left",
        "epoch 2: step 6/6, loss 3.5000, 0 s left",
    ]


def test_lines_of_epochs(clock, capsys):
    """At most one a second, the first one and the last."""
    callback = callbacks.EpochLines(num_epochs=9)
    for epoch in range(5):
        clock.now += 0.4
        callback.on_epoch_end(epoch, {"loss": 1.0 - 0.1 * epoch, "learning_rate": 2e-5})
    callback.on_train_end()
    callback.on_train_end()
    assert capsys.readouterr().out.splitlines() == [
        "epoch 1/9: loss 1.0000, learning_rate 2.0e-05",
        "epoch 4/9: loss 0.7000, learning_rate 2.0e-05",
        "epoch 5/9: loss 0.6000, learning_rate 2.0e-05",
    ]


def test_figures_of_many_layers():
    """The sum of those of three layers at least; of two, each."""
    logs = {"loss": 0.5} | {f"{part}{n}_kl": n + 1.0 for part in ("layer_", "val_layer_") for n in range(3)}
    logs |= {f"{name}_kl_above_floor": 0.25 for name in ("first", "second")}
    assert callbacks.figures_of(logs) == (
        "loss 0.5000, kl of 3 layers 6.0000, val_kl of 3 layers 6.0000, first_kl_above_floor 0.2500, "
        "second_kl_above_floor 0.2500"
    )


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
