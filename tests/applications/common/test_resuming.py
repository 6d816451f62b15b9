"""A run that ended before its time, and goes on: bit for bit what it would have been."""

import errno
import json
import os
import pathlib

import numpy as np
import pytest
import yaml
from program_case import fewer
from program_cases import few_cases
from run_files import assert_same_run, files_of, read_checkpoint, read_history, read_json, without_time
from tiers import slow_after

from applications.common import callbacks, checkpoint, training


@few_cases
def test_stopped_within_an_epoch(case, trained, tmp_path, interrupted, monkeypatch, without_pictures):
    """An epoch, then one more, which is stopped in its third step, the state of its second saved: it goes on with the
    third, with the options that its folder has, and reports what an uninterrupted run reports."""
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(training.TrainingRun, "finish", lambda run: None)
        case.succeeds(*case.train(out, epochs=1, export=False))
    assert len(read_history(out)) == 1
    words = ("train", "--resume", "--out", out)
    with interrupted(1, 2):
        message = "interrupted. A run that was training goes on with train --resume"
        case.fails(message, *words, "--epochs", 2, "--checkpoint-steps", 2, status=130)
    record, _ = read_checkpoint(out)
    assert (record["epoch"], record["step"], record["num_metrics"] > 0) == (1, 2, True)
    assert not (out / "metrics.json").exists()
    assert not list(out.rglob(".tmp*"))
    assert "resuming after epoch 1, step 2" in case.succeeds(*words)
    assert_same_run(out, trained)
    assert read_json(out / "metrics.json")["report"] == read_json(trained / "metrics.json")["report"]
    for name in case.answers:
        if not name.endswith(".png"):
            assert contents_of(out / name) == contents_of(trained / name), name


def contents_of(path):
    """What a file, or every file of a folder but pictures, holds."""
    files = (x for x in (path, *path.rglob("*")) if x.is_file() and x.suffix != ".png")
    return {str(x.relative_to(path)): x.read_bytes() for x in files}


@few_cases
def test_a_finished_run_reports_again(case, copied, trained, without_pictures):
    """It trains no more, and what is missing of it is written."""
    for name in ("history.csv", "metrics.json", "report.txt", "model.keras"):
        (copied / name).unlink()
    printed = case.succeeds("train", "--resume", "--out", copied, "--no-export")
    assert "resuming after epoch 2, step 0" in printed and "Epoch" not in printed
    assert (copied / "history.csv").read_bytes() == (trained / "history.csv").read_bytes()
    assert (copied / "checkpoints/checkpoint.npz").read_bytes() == (trained / "checkpoints/checkpoint.npz").read_bytes()
    record, before = read_json(copied / "metrics.json"), read_json(trained / "metrics.json")
    assert record.pop("options") == before.pop("options") | {"out": str(copied), "export": False}
    # Of the run that trained, and of what was reported again.
    trained_for = read_checkpoint(copied)[0]["cpu_seconds"]
    assert 0 < trained_for < before["cpu_seconds"] and trained_for < record["cpu_seconds"]
    other = {"environment": None, "cpu_seconds": None}
    assert record | other == before | other
    assert (copied / "model.keras").exists()


@few_cases
def test_other_data_are_another_run(case, copied, tmp_path):
    config = yaml.safe_load((copied / "config.yaml").read_text())
    name = next(iter(case.data))
    path = (tmp_path / "fewer").with_suffix(pathlib.Path(config[name]).suffix)
    path.write_text(fewer(case.data[name]), encoding="utf-8")
    (copied / "config.yaml").write_text(yaml.safe_dump({**config, name: str(path)}))
    before = files_of(copied)
    case.fails("the data are not those of this run", "train", "--resume", "--out", copied)
    case.fails("the data are not those of this run", "evaluate", "--run", copied)
    assert files_of(copied) == before


def test_before_the_first_checkpoint_a_run_starts_again(toy, trained_toy, tmp_path, interrupted, weights_only):
    with interrupted(0, 0):
        toy.fails("interrupted", *toy.train(tmp_path / "run"), status=130)
    assert not list((tmp_path / "run/checkpoints").iterdir())
    toy.succeeds("train", "--resume", "--out", tmp_path / "run")
    assert_same_run(tmp_path / "run", trained_toy)


@pytest.mark.parametrize("steps", [None, 3])
def test_states_between_epochs(toy, tmp_path, interrupted, steps):
    """Five steps an epoch: none of them is saved, or the third."""
    with interrupted(1, 4):
        toy.fails("interrupted", *toy.train(tmp_path / "run", checkpoint_steps=steps), status=130)
    record, _ = read_checkpoint(tmp_path / "run")
    assert (record["epoch"], record["step"]) == (1, steps or 0)


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
def test_stopped_within_an_epoch_of_whatever_kind(toy, tmp_path, weights_only, interrupted, options):
    """The rate and the loss scale are part of the state."""
    toy.succeeds(*toy.train(tmp_path / "whole", **options))
    with interrupted(1, 2):
        toy.fails("interrupted", *toy.train(tmp_path / "parts", checkpoint_steps=1, **options), status=130)
    toy.succeeds("train", "--resume", "--out", tmp_path / "parts")
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


def test_stopped_twice_in_one_epoch(toy, trained_toy, tmp_path, weights_only, interrupted):
    """The state after the second stop counts the steps of the epoch, and not those of its own `fit`."""
    words = toy.train(tmp_path / "run", checkpoint_steps=1)
    for step, more in ((2, ()), (4, ("--resume",))):
        with interrupted(0, step):
            toy.fails("interrupted", *words, *more, status=130)
        assert read_checkpoint(tmp_path / "run")[0]["step"] == step
    toy.succeeds(*words, "--resume")
    assert_same_run(tmp_path / "run", trained_toy)


def test_a_limit_of_steps_that_is_raised(toy, trained_toy, tmp_path, weights_only):
    """It ends where it says, within an epoch; more steps of that epoch are another run."""
    toy.succeeds(*toy.train(tmp_path / "run", max_steps=5))
    assert len(read_history(tmp_path / "run")) == 1
    toy.succeeds("train", "--resume", "--out", tmp_path / "run", "--max-steps", "none")
    assert_same_run(tmp_path / "run", trained_toy)


def test_a_run_that_stopped_early_stays_stopped(toy, tmp_path, weights_only):
    words = toy.train(tmp_path / "run", epochs=9, early_stopping=1, learning_rate=0.5)
    toy.succeeds(*words)
    rows = read_history(tmp_path / "run")
    losses = [row["val_loss"] for row in rows]
    assert len(rows) < 9 and losses[-1] >= losses[-2] and losses[:-1] == sorted(losses[:-1], reverse=True)
    before = (tmp_path / "run/checkpoints/checkpoint.npz").read_bytes()
    assert "Epoch" not in toy.succeeds("train", "--resume", "--out", tmp_path / "run")
    assert (tmp_path / "run/checkpoints/checkpoint.npz").read_bytes() == before
    # With more patience it goes on.
    toy.succeeds("train", "--resume", "--out", tmp_path / "run", "--early-stopping", 3)
    assert len(read_history(tmp_path / "run")) > len(rows)


@pytest.mark.parametrize("call", [2, 5])
def test_a_full_disk_leaves_a_run_that_goes_on(toy, trained_toy, tmp_path, monkeypatch, weights_only, call):
    """While weights or a state of training are written."""
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


def test_a_loss_that_is_no_number_ends_the_run(toy, tmp_path):
    words = toy.train(tmp_path / "run", learning_rate=1e30, clip_norm=None, optimizer="sgd")
    toy.fails("The loss became", *words, status=3)
    assert not (tmp_path / "run/weights.npz").exists()
    toy.fails("no epoch has been finished, weights.npz is missing. Go on", "evaluate", "--run", tmp_path / "run")


def test_damaged_states(toy, copied_toy, tmp_path):
    """A state that is cut off, one of another model, and data that the run does not know."""
    path = copied_toy / "checkpoints/checkpoint.npz"
    content = path.read_bytes()
    words = ("train", "--resume", "--out", copied_toy)
    path.write_bytes(content[: len(content) // 2])
    toy.fails("checkpoint.npz is not a readable checkpoint", *words)
    path.write_bytes(content)
    config = yaml.safe_load((copied_toy / "config.yaml").read_text())
    (copied_toy / "config.yaml").write_text(yaml.safe_dump({**config, "units": 5}))
    toy.fails("checkpoint.npz does not fit the model: it has", *words)
    toy.fails("weights.npz does not fit the model that config.yaml describes", "evaluate", "--run", copied_toy)
    record = json.loads((copied_toy / "metrics.json").read_text())
    assert record["options"]["units"] == 4
    assert training.CHECKPOINT == "checkpoints/checkpoint.npz"


def test_stopped_between_the_last_step_of_an_epoch_and_its_end(toy, trained_toy, tmp_path, weights_only):
    """In validation, say: the number of steps between two states divides that of an epoch."""

    def stop(self, epoch, logs=None):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(callbacks.EpochSeconds, "on_epoch_end", stop)
        toy.fails("interrupted", *toy.train(tmp_path / "run", checkpoint_steps=1), status=130)
    record, _ = read_checkpoint(tmp_path / "run")
    assert (record["epoch"], record["step"]) == (0, 4)
    toy.succeeds("train", "--resume", "--out", tmp_path / "run")
    assert_same_run(tmp_path / "run", trained_toy)


@pytest.mark.slow
def test_an_epoch_that_a_number_of_steps_has_cut_short_goes_on(toy, trained_toy, tmp_path, weights_only):
    toy.succeeds(*toy.train(tmp_path / "run", max_steps=7))
    record, _ = read_checkpoint(tmp_path / "run")
    assert (record["epoch"], record["step"]) == (1, 2)
    assert len(read_history(tmp_path / "run")) == 2
    words = ("train", "--resume", "--out", tmp_path / "run", "--max-steps")
    toy.fails("--max-steps: the run has taken 7 steps already. Received: 6", *words, 6)
    toy.succeeds(*words, "none")
    assert without_time(read_history(tmp_path / "run")) == without_time(read_history(trained_toy))
    (_, arrays), (_, expected) = read_checkpoint(tmp_path / "run"), read_checkpoint(trained_toy)
    for name in expected:
        np.testing.assert_array_equal(arrays[name], expected[name], err_msg=name)


def test_overwriting_spares_what_is_no_run(toy, tmp_path):
    """Another program's config.yaml, and the run that this one would start from."""
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
