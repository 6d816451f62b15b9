"""Tests that resumed runs give, bit for bit, the result of an uninterrupted run."""

import errno
import json
import os

import numpy as np
import pytest
from run_files import assert_same_run, read_checkpoint, read_history, read_json
from tiers import slow_after

from applications.common import callbacks, checkpoint, training


def test_stopped_within_an_epoch(toy, trained_toy, tmp_path, interrupted, monkeypatch, without_pictures):
    """The second epoch is interrupted in its third step, and the checkpoint contains the state after two steps. The run
    continues at the third step with the options in its folder, and its report equals that of an uninterrupted run."""
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(training.TrainingRun, "finish", lambda run: None)
        toy.succeeds(*toy.train(out, epochs=1, export=False))
    assert len(read_history(out)) == 1
    words = ("train", "--resume", "--out", out)
    with interrupted(1, 2):
        message = "interrupted. Continue a training run with train --resume"
        toy.fails(message, *words, "--epochs", 2, "--checkpoint-steps", 7, status=130)
    record, _ = read_checkpoint(out)
    assert (record["epoch"], record["step"]) == (1, 2)
    assert not (out / "metrics.json").exists()
    assert not list(out.rglob(".tmp*"))
    assert "resuming after epoch 1, step 2" in toy.succeeds(*words)
    assert_same_run(out, trained_toy)
    assert read_json(out / "metrics.json")["report"] == read_json(trained_toy / "metrics.json")["report"]
    for name in toy.answers:
        assert (out / name).read_bytes() == (trained_toy / name).read_bytes(), name


def test_a_finished_run_reports_again(toy, copied_toy, trained_toy, without_pictures):
    """`train --resume` of a finished run does not train further, but writes missing files."""
    for name in ("history.csv", "metrics.json", "report.txt", "model.keras"):
        (copied_toy / name).unlink()
    printed = toy.succeeds("train", "--resume", "--out", copied_toy, "--no-export")
    assert "resuming after epoch 2, step 0" in printed and "Epoch" not in printed
    assert (copied_toy / "history.csv").read_bytes() == (trained_toy / "history.csv").read_bytes()
    state = "checkpoints/checkpoint.npz"
    assert (copied_toy / state).read_bytes() == (trained_toy / state).read_bytes()
    record, before = read_json(copied_toy / "metrics.json"), read_json(trained_toy / "metrics.json")
    assert record.pop("options") == before.pop("options") | {"out": str(copied_toy), "export": False}
    # The checkpoint records the CPU time of training, and metrics.json the CPU time of training and report.
    trained_for = read_checkpoint(copied_toy)[0]["cpu_seconds"]
    assert 0 < trained_for < before["cpu_seconds"] and trained_for < record["cpu_seconds"]
    other = {"environment": None, "cpu_seconds": None}
    assert record | other == before | other
    assert (copied_toy / "model.keras").exists()


@pytest.mark.slow
def test_before_the_first_checkpoint_a_run_starts_again(toy, trained_toy, tmp_path, interrupted, weights_only):
    with interrupted(0, 0):
        toy.fails("interrupted", *toy.train(tmp_path / "run"), status=130)
    assert not list((tmp_path / "run/checkpoints").iterdir())
    toy.succeeds("train", "--resume", "--out", tmp_path / "run")
    assert_same_run(tmp_path / "run", trained_toy)


@pytest.mark.parametrize(("checkpoint_steps", "step"), [(None, 0), (3, 4)])
def test_states_between_epochs(toy, tmp_path, interrupted, checkpoint_steps, step):
    """The state is saved after each epoch of five steps or, with `checkpoint_steps`, also after every third step."""
    with interrupted(1, 4):
        toy.fails("interrupted", *toy.train(tmp_path / "run", checkpoint_steps=checkpoint_steps), status=130)
    record, _ = read_checkpoint(tmp_path / "run")
    assert (record["epoch"], record["step"]) == (1, step)


@pytest.mark.parametrize(
    "options",
    slow_after(
        [
            {"schedule": "plateau", "mixed_precision": "float16", "optimizer": "rmsprop"},
            {"schedule": "cosine", "warmup_steps": 3, "optimizer": "adamw"},
        ]
    ),
    ids=lambda options: options["schedule"],
)
def test_stopped_within_an_epoch_with_other_options(toy, tmp_path, weights_only, interrupted, options):
    """The saved state includes the learning rate and the loss scale."""
    toy.succeeds(*toy.train(tmp_path / "whole", **options))
    with interrupted(1, 2):
        toy.fails("interrupted", *toy.train(tmp_path / "parts", checkpoint_steps=1, **options), status=130)
    toy.succeeds("train", "--resume", "--out", tmp_path / "parts")
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.slow
def test_stopped_twice_in_one_epoch(toy, trained_toy, tmp_path, weights_only, interrupted):
    """After the second stop, the state counts steps from the start of the epoch, not from the start of `fit`."""
    words = toy.train(tmp_path / "run", checkpoint_steps=1)
    for step, more in ((2, ()), (4, ("--resume",))):
        with interrupted(0, step):
            toy.fails("interrupted", *words, *more, status=130)
        assert read_checkpoint(tmp_path / "run")[0]["step"] == step
    toy.succeeds(*words, "--resume")
    assert_same_run(tmp_path / "run", trained_toy)


def test_a_limit_of_steps_that_is_raised(toy, trained_toy, tmp_path, weights_only):
    """With a higher limit, the unfinished epoch is continued, and its row in the history is replaced."""
    words = ("train", "--resume", "--out", tmp_path / "run", "--max-steps")
    toy.succeeds(*toy.train(tmp_path / "run", max_steps=7))
    record, _ = read_checkpoint(tmp_path / "run")
    assert (record["epoch"], record["step"]) == (1, 2)
    assert len(read_history(tmp_path / "run")) == 2
    toy.fails("--max-steps: the run has already taken 7 steps. Received: 6", *words, 6)
    toy.succeeds(*words, "none")
    assert_same_run(tmp_path / "run", trained_toy)


@pytest.mark.slow
def test_a_state_of_an_earlier_version(toy, trained_toy, tmp_path, weights_only):
    """An old checkpoint contains the shapes and types of variables, and the row of an unfinished epoch separately."""
    toy.succeeds(*toy.train(tmp_path / "run", max_steps=7))
    path = tmp_path / "run/checkpoints/checkpoint.npz"
    record, arrays = read_checkpoint(tmp_path / "run")
    record |= {"unfinished": record["rows"].pop(), "num_metrics": 4}
    record["variables"] = [[name, [], "float32"] for name in record["variables"]]
    np.savez(path, **arrays, record=np.frombuffer(json.dumps(record).encode(), "uint8"))
    toy.succeeds("train", "--resume", "--out", tmp_path / "run")
    assert len(read_history(tmp_path / "run")) == 2
    toy.succeeds("train", "--resume", "--out", tmp_path / "run", "--max-steps", "none")
    assert_same_run(tmp_path / "run", trained_toy)


@pytest.mark.slow
def test_a_run_that_stopped_early_stays_stopped(toy, tmp_path, weights_only):
    words = toy.train(tmp_path / "run", epochs=9, early_stopping=1, learning_rate=0.5)
    toy.succeeds(*words)
    rows = read_history(tmp_path / "run")
    losses = [row["val_loss"] for row in rows]
    assert len(rows) < 9 and losses[-1] >= losses[-2] and losses[:-1] == sorted(losses[:-1], reverse=True)
    before = (tmp_path / "run/checkpoints/checkpoint.npz").read_bytes()
    assert "Epoch" not in toy.succeeds("train", "--resume", "--out", tmp_path / "run")
    assert (tmp_path / "run/checkpoints/checkpoint.npz").read_bytes() == before
    # With more patience the run continues.
    toy.succeeds("train", "--resume", "--out", tmp_path / "run", "--early-stopping", 3)
    assert len(read_history(tmp_path / "run")) > len(rows)


@pytest.mark.parametrize("call", [2, 5])
def test_a_run_continues_after_a_full_disk(toy, trained_toy, tmp_path, monkeypatch, weights_only, call):
    """A run can be resumed after the disk was full while weights or a state of training were written."""
    calls, savez = [], np.savez

    def full(file, **arrays):
        calls.append(1)
        if len(calls) == call:
            file.write(b"half of it")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        savez(file, **arrays)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.np, "savez", full)
        toy.fails("No space left on device", *toy.train(tmp_path / "run", checkpoint_steps=2), status=4)
    assert not list((tmp_path / "run").rglob(".tmp*"))
    toy.succeeds("train", "--resume", "--out", tmp_path / "run")
    assert_same_run(tmp_path / "run", trained_toy)


def test_a_loss_of_nan_ends_the_run(toy, tmp_path):
    words = toy.train(tmp_path / "run", learning_rate=1e30, clip_norm=None, optimizer="sgd")
    toy.fails("The loss is", *words, status=3)
    assert not (tmp_path / "run/weights.npz").exists()
    toy.fails(
        "no epoch is finished, so weights.npz is missing. Use train --resume", "evaluate", "--run", tmp_path / "run"
    )


def test_stopped_between_the_last_step_of_an_epoch_and_its_end(toy, trained_toy, tmp_path, weights_only):
    """Training stops after the last step of an epoch, for example during validation. Every step saves the state."""

    def stop(self, epoch, logs=None):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(callbacks.EpochLog, "on_epoch_end", stop)
        toy.fails("interrupted", *toy.train(tmp_path / "run", checkpoint_steps=1), status=130)
    record, _ = read_checkpoint(tmp_path / "run")
    assert (record["epoch"], record["step"]) == (0, 4)
    toy.succeeds("train", "--resume", "--out", tmp_path / "run")
    assert_same_run(tmp_path / "run", trained_toy)


def test_overwriting_deletes_only_runs(toy, tmp_path):
    """`--overwrite` deletes neither another program's folder with a config.yaml nor the run of `--start-from`."""
    other = tmp_path / "project"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    for config in ("my: project\n", "{}\n", "model: gaussian\nmy: project\n"):
        (other / "config.yaml").write_text(config)
        status, _, err = toy.call(*toy.train(other, overwrite=True))
        assert status == 2 and err.startswith("error: "), err
    assert (other / "thesis.tex").read_text() == "years of work"
    (tmp_path / "link").symlink_to(other)
    toy.fails("is a link", *toy.train(tmp_path / "link", overwrite=True))
