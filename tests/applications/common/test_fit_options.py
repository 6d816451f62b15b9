"""Tests the effects of training options on the toy program: schedules, optimizers, precision and stored weights."""

import dataclasses
import json
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from run_files import read_arrays, read_checkpoint, read_history, read_json

from applications.common import replicas, training
from applications.common.callbacks import Plateau, epochs_without_better
from applications.common.optimizers import optimizer_of
from applications.common.options import FitOptions
from applications.common.training import load_run


def score(row):
    return row["val_loss"]


def rates(num_batches=4, num_steps=12, **options):
    """Return the learning rate of each step."""
    optimizer = optimizer_of(FitOptions(**options), num_batches, num_steps)
    learning_rates = []
    for step in range(num_steps):
        optimizer._iterations.assign(step)
        learning_rates.append(float(optimizer.learning_rate))
    return learning_rates


def test_an_exponential_schedule_is_that_of_keras():
    options = {"schedule": "exponential", "learning_rate": 0.01, "learning_rate_decay": 0.5}
    keras_reference = keras.optimizers.schedules.ExponentialDecay(0.01, 4, 0.5, staircase=True)
    assert rates(**options) == pytest.approx([float(keras_reference(step)) for step in range(12)])
    assert rates(**options, decay_every=2) == pytest.approx(8 * [0.01] + 4 * [0.005])
    assert rates(**options, decay_after=1) == pytest.approx(8 * [0.01] + 4 * [0.005])


def test_a_warm_up_and_a_cosine():
    # The default warm-up is a tenth of the steps, here one of twelve.
    assert rates(warmup_steps=None, learning_rate=0.4) == rates(warmup_steps=1, learning_rate=0.4)
    for options in ({"warmup_epochs": 2}, {"schedule": "plateau"}):
        assert rates(warmup_steps=None, **options) == rates(**options)
    warm = rates(warmup_steps=4, learning_rate=0.4)
    assert warm == pytest.approx([0.1, 0.2, 0.3, *(9 * [0.4])])
    cosine = rates(schedule="cosine", learning_rate=0.4)
    assert cosine == pytest.approx([0.2 * (1 + np.cos(np.pi * step / 12)) for step in range(12)], rel=1e-5)
    by_epoch = rates(warmup_epochs=4, learning_rate=0.4, num_batches=2)
    assert by_epoch == pytest.approx([0.1, 0.1, 0.2, 0.2, 0.3, 0.3, *(6 * [0.4])])
    both = rates(schedule="cosine", learning_rate=0.4, warmup_steps=4)
    assert both == pytest.approx(
        [0, 0.1, 0.2, 0.3] + [0.2 * (1 + np.cos(np.pi * step / 8)) for step in range(8)], rel=1e-5
    )
    # At the last step the learning rate is almost 0.
    assert rates(schedule="cosine", learning_rate=0.4, num_steps=5)[-1] < 0.05
    decayed = rates(schedule="exponential", learning_rate=0.4, warmup_steps=4)
    assert decayed == pytest.approx([0.1, 0.2, 0.3, 0.4, *(4 * [0.2]), *(4 * [0.1])])


def test_the_schedule_of_mcan():
    """Epoch t has the rate min(2.5e-5 t, 1e-4), divided by 5 every 2 epochs from epoch 11 (Fan et al. 2020, B.2.3)."""
    options = {"schedule": "exponential", "learning_rate_decay": 0.2, "decay_after": 8, "decay_every": 2}
    learning_rates = rates(1, 13, learning_rate=1e-4, warmup_epochs=4, **options)
    assert learning_rates == pytest.approx([2.5e-5, 5e-5, 7.5e-5, *(7 * [1e-4]), 2e-5, 2e-5, 4e-6])


def test_a_plateau():
    """The plateau schedule reads the history, so a resumed run lowers the rate and stops at the same epochs."""
    losses, expected = [3.0, 2.0, 2.5, 2.4, 2.3, 1.0, 1.5], [1.0, 1.0, 1.0, 0.5, 0.25, 0.25, 0.25]
    options = FitOptions(schedule="plateau", learning_rate_decay=0.5, patience=1, early_stopping=3)
    model = types.SimpleNamespace(optimizer=types.SimpleNamespace(learning_rate=keras.Variable(1.0)))
    for epoch, loss in enumerate(losses):
        rows = [{"val_loss": loss} for loss in losses[:epoch]]
        plateau = Plateau(types.SimpleNamespace(rows=rows), options, score, score)
        plateau.set_model(model)
        model.stop_training = False
        plateau.on_epoch_end(epoch, {"val_loss": loss})
        assert float(model.optimizer.learning_rate) == expected[epoch]
        assert model.stop_training == (epoch == 4)


def test_epochs_without_better():
    assert [epochs_without_better(losses) for losses in ([], [2.0], [2.0, 1.0], [1.0, 2.0, 1.0])] == [0, 0, 0, 2]
    assert epochs_without_better([1.0, np.nan, 2.0]) == 2
    assert [epochs_without_better(losses) for losses in (2 * [np.inf], [np.inf, 9.0, 9.5])] == [0, 1]


@pytest.mark.parametrize("name", ["adam", "adamw", "adagrad", "rmsprop", "sgd"])
def test_an_optimizer_makes_a_step(name):
    """The step equals that of the Keras optimizer with the same name. Weight decay is decoupled from the gradient."""
    assert optimizer_of(FitOptions(optimizer=name), 4, 12).weight_decay == (0.004 if name == "adamw" else None)
    # The default decay of AdamW in Keras is 0.004.
    options = FitOptions(
        optimizer=name, learning_rate=0.1, clip_norm=1.0, weight_decay=0.0 if name == "adamw" else None
    )
    keras_reference = getattr(
        keras.optimizers, {"rmsprop": "RMSprop", "sgd": "SGD", "adamw": "Adam"}.get(name, name.title())
    )
    steps = []
    decayed = dataclasses.replace(options, weight_decay=0.5)
    for optimizer in (optimizer_of(options, 4, 12), keras_reference(0.1), optimizer_of(decayed, 4, 12)):
        weight = keras.Variable([2.0, -1.0])
        optimizer.build([weight])
        optimizer.apply([keras.ops.array([0.6, 0.8])])
        steps.append(weight.numpy())
    np.testing.assert_allclose(steps[0], steps[1], rtol=1e-6)
    np.testing.assert_allclose(steps[2] - steps[0], [-0.1, 0.05], rtol=1e-5)


def test_a_gradient_is_clipped():
    """Clipping by norm preserves the direction of a gradient; clipping by value changes each element."""
    for clipped, expected in (
        ({"clip_norm": 1.0}, [-0.06, -0.08]),
        ({"clip_norm": None}, [-0.6, -0.8]),
        ({"clip_norm": 1.0, "clip_value": 7.0}, [-0.6, -0.7]),
    ):
        optimizer = optimizer_of(FitOptions(optimizer="sgd", learning_rate=0.1, **clipped), 4, 12)
        weight = keras.Variable([0.0, 0.0])
        optimizer.build([weight])
        optimizer.apply([keras.ops.array([6.0, 8.0])])
        np.testing.assert_allclose(weight, expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["best", "last"])
def test_which_weights_are_stored(toy, tmp_path, keep):
    """The loss rises in training. The report uses the weights of the best or of the last epoch, as `keep` says."""
    words = toy.train(tmp_path / "run", keep=keep, epochs=3, learning_rate=5.0, optimizer="sgd", export=False)
    toy.succeeds(*words)
    losses = [row["val_loss"] for row in read_history(tmp_path / "run")]
    assert int(np.argmin(losses)) < 2
    record = read_json(tmp_path / "run/metrics.json")
    assert record["epoch"] == (int(np.argmin(losses)) + 1 if keep == "best" else 3)
    run = load_run(toy.program.application(), tmp_path / "run")
    part = run.data["valid"] = toy.program.application().encode(
        run.options, run.codec, toy.program.application().read(run.options)["valid"]
    )
    report, _ = toy.program.application().evaluate(run, part)
    run.models.training.compile(loss=keras.losses.SparseCategoricalCrossentropy())
    loss = run.models.training.evaluate(*part, batch_size=99, verbose=0)[0]
    assert loss == pytest.approx(losses[record["epoch"] - 1], rel=1e-4)
    assert report["cross_entropy"] <= loss


@pytest.mark.slow
def test_half_precision(toy, tmp_path, weights_only):
    """With float16 precision, losses and weights are float32, and the checkpoint contains the loss scale."""
    toy.succeeds(*toy.train(tmp_path / "run", mixed_precision="float16"))
    assert all(np.isfinite(value) for row in read_history(tmp_path / "run") for value in row.values())
    record, _ = read_checkpoint(tmp_path / "run")
    assert any(name.endswith("/dynamic_scale") for name in record["variables"])
    arrays = read_arrays(tmp_path / "run/weights.npz")
    assert all(arrays[name].dtype.kind in "fU" for name in arrays.keys() - {"record"})
    run = load_run(toy.program.application(), tmp_path / "run")
    assert keras.config.dtype_policy().name == "mixed_float16"
    assert run.models.training.get_layer("memory").compute_dtype == "float16"
    assert run.models.training(np.zeros((1, 6, 4), "float32")).dtype == "float32"


@pytest.mark.slow
def test_a_missing_strategy(toy, tmp_path, monkeypatch):
    """With TF_CONFIG but no strategy, every machine would train its own model, so `train` prints a message."""
    monkeypatch.setenv("TF_CONFIG", "{}")
    replicas.strategy_of.cache_clear()
    assert "TF_CONFIG is ignored because --strategy is none" in toy.succeeds(*toy.train(tmp_path / "run", epochs=1))


@pytest.mark.slow
def test_two_replicas(toy, tmp_path, weights_only, two_replicas, monkeypatch):
    """Two replicas train one model: without noise, the weights equal the weights after training on one replica."""
    strategies = {"none": tf.distribute.get_strategy(), "mirrored": two_replicas}
    monkeypatch.setattr(training, "strategy_of", strategies.get)
    words = {"model": "deterministic", "epochs": 1, "optimizer": "sgd"}
    losses = []
    for strategy in ("none", "mirrored"):
        toy.succeeds(*toy.train(tmp_path / strategy, strategy=strategy, **words), eager=strategy == "none")
        losses.append(read_history(tmp_path / strategy)[0]["loss"])
    one, two = (read_arrays(tmp_path / strategy / "weights.npz") for strategy in ("none", "mirrored"))
    for name in one.keys() - {"names", "record"}:
        np.testing.assert_allclose(two[name], one[name], rtol=1e-4, atol=1e-5)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.slow
def test_two_runs_of_one_training(toy, tmp_path, weights_only, interrupted):
    """A run that starts from another run ends like one run of all epochs, with the same optimizer, schedule and order
    of batches, even if it is killed before it writes a checkpoint."""
    options = {"model": "deterministic", "epochs": 3, "max_steps": 13, "schedule": "exponential", "warmup_steps": 7}
    uninterrupted, start, rest = (tmp_path / name for name in ("whole", "start", "rest"))
    toy.succeeds(*toy.train(uninterrupted, **options))
    # Three of the 8 steps are in the second epoch.
    toy.succeeds(*toy.train(start, **options | {"epochs": 2, "max_steps": 8}))
    (start / "metrics.json").write_text(json.dumps({"options": {"epochs": 2}}))
    with interrupted(1, 4):
        words = toy.train(rest, **options, start_from=str(start))
        toy.fails("interrupted", *words, status=130)
    assert "resuming after epoch 1, step 3" in toy.succeeds("train", "--resume", "--out", rest)
    (record, expected), (resumed, arrays) = (read_checkpoint(folder) for folder in (uninterrupted, rest))
    assert (resumed["epoch"], resumed["step"]) == (record["epoch"], record["step"]) == (2, 3)
    names = record["variables"]
    assert "adam/memory_kernel_velocity" in names and "adam/iteration" in names
    for index, name in enumerate(names):
        if "seed_generator" not in name:
            np.testing.assert_array_equal(*(x[f"variable_{index:05d}"] for x in (arrays, expected)), err_msg=name)
    uninterrupted_rows, start_rows, rest_rows = (read_history(folder) for folder in (uninterrupted, start, rest))
    assert [row["epoch"] for row in (*start_rows, *rest_rows)] == [1, 2, 2, 3]
    for name in ("learning_rate", "val_loss"):
        assert [row[name] for row in rest_rows] == [row[name] for row in uninterrupted_rows[1:]]


@pytest.mark.slow
def test_runs_that_cannot_be_continued(toy, copied_toy, tmp_path):
    """`--start-from` rejects a run that has another size or other options, no steps or epochs left, or no state."""
    for changes, message in (
        ({"units": 9}, f"--start-from: {copied_toy} does not fit this model. The names"),
        ({"standardize": False}, f"--start-from: {copied_toy} was trained with different values of standardize."),
        ({"learning_rate": 0.5, "optimizer": "sgd"}, "was trained with different values of optimizer, learning_rate."),
        ({"epochs": 2}, f"--epochs: must exceed the 2 epochs for which {copied_toy} was trained. Received: 2"),
        ({"max_steps": 10}, "--max-steps: the run has already taken 10 steps. Received: 10"),
    ):
        words = {"epochs": 3, "start_from": str(copied_toy), **changes}
        toy.fails(message, *toy.train(tmp_path / "run", **words))
    words = toy.train(tmp_path / "run", epochs=3, start_from=str(copied_toy))
    (copied_toy / "checkpoints/checkpoint.npz").unlink()
    toy.fails(f"{copied_toy} has not finished training, or has no checkpoints/checkpoint.npz.", *words)
    assert not (tmp_path / "run").exists()
