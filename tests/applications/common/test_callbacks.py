import csv
import errno
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
import tensorflow as tf

from applications.common.callbacks import Checkpoint, HistoryWriter, StopOnNaN, training_variables
from applications.common.errors import InputError

ROOT = pathlib.Path(__file__).parents[3]
EPOCHS = 4

# One training program for the tests in this process and for the processes that are killed.
PROGRAM = textwrap.dedent(
    """
    import os, signal
    import keras, numpy as np
    from applications.common.callbacks import Checkpoint, HistoryWriter

    def build(precision="float32"):
        keras.utils.set_random_seed(0)
        policy = keras.DTypePolicy(precision)
        model = keras.Sequential([
            keras.Input((6,)),
            keras.layers.Dense(8, activation="relu", dtype=policy),
            keras.layers.BatchNormalization(dtype=policy),
            keras.layers.Dropout(0.3, seed=1, dtype=policy),
            keras.layers.GaussianNoise(0.1, dtype=policy),
            keras.layers.Dense(1, dtype=policy),
        ])
        optimizer = keras.optimizers.Adam(0.01)
        if precision == "mixed_float16":
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=8.0, dynamic_growth_steps=3)
        model.compile(optimizer, "mse", jit_compile=False)
        return model

    def train(folder, epochs, precision="float32", extra=(), **options):
        generator = np.random.default_rng(0)
        x, y = generator.normal(size=(24, 6)).astype("float32"), generator.normal(size=(24, 1)).astype("float32")
        model = build(precision)
        checkpoint = Checkpoint(os.path.join(folder, "checkpoint.npz"), **options)
        initial_epoch, rows = checkpoint.restore(model)
        history = HistoryWriter(os.path.join(folder, "history.csv"), rows)
        model.fit(x, y, batch_size=8, epochs=epochs, initial_epoch=initial_epoch, shuffle=False, verbose=0,
                  validation_data=(x, y), callbacks=[*extra, checkpoint, history])
        return model

    class Kill(keras.callbacks.Callback):
        def __init__(self, epoch):
            super().__init__()
            self.at, self.epoch = epoch, None

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            if (self.epoch, batch) == (self.at, 1):
                os.kill(os.getpid(), signal.SIGKILL)
    """
)
program = {}
exec(compile(PROGRAM, "program", "exec"), program)
build, train = program["build"], program["train"]


def in_process(code):
    """Runs the training program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + code],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )


def state(model):
    return [keras.ops.convert_to_numpy(variable) for variable in training_variables(model)]


def assert_same_state(one, two):
    assert len(state(one)) == len(state(two))
    for first, second in zip(state(one), state(two), strict=True):
        np.testing.assert_array_equal(first, second)


def history(folder):
    with open(folder / "history.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# Checkpoints


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    return folder, train(folder, EPOCHS)


def test_a_killed_run_ends_where_the_uninterrupted_one_does(tmp_path, uninterrupted):
    folder, expected = uninterrupted
    killed = in_process(f"train({str(tmp_path)!r}, {EPOCHS}, extra=[Kill(2)])")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [row["epoch"] for row in history(tmp_path)] == ["1", "2"]
    resumed = train(tmp_path, EPOCHS)
    assert_same_state(resumed, expected)
    assert history(tmp_path) == history(folder)
    assert {"epoch", "loss", "val_loss"} <= set(history(tmp_path)[0])


def test_the_seed_states_matter(tmp_path, uninterrupted, monkeypatch):
    _, expected = uninterrupted
    train(tmp_path, 2)
    weights_only = Checkpoint.restore

    def without_seeds(self, model):
        seeds = [variable for variable in model.variables if "seed" in variable.path]
        assert len(seeds) == 2
        before = [keras.ops.convert_to_numpy(variable) for variable in seeds]
        result = weights_only(self, model)
        for variable, value in zip(seeds, before, strict=True):
            variable.assign(value)
        return result

    monkeypatch.setattr(Checkpoint, "restore", without_seeds)
    resumed = train(tmp_path, EPOCHS)
    assert not np.array_equal(resumed.get_weights()[0], expected.get_weights()[0])


def test_a_loss_scale_is_part_of_the_state(tmp_path):
    expected = train(tmp_path / "whole", EPOCHS, "mixed_float16")
    train(tmp_path / "parts", 2, "mixed_float16")
    fresh = build("mixed_float16")
    Checkpoint(tmp_path / "parts" / "checkpoint.npz").restore(fresh)
    assert float(fresh.optimizer.dynamic_scale) > 8.0
    assert_same_state(train(tmp_path / "parts", EPOCHS, "mixed_float16"), expected)


def test_bfloat16_variables_keep_their_bits(tmp_path):
    expected = train(tmp_path, 1, "bfloat16")
    fresh = build("bfloat16")
    assert Checkpoint(tmp_path / "checkpoint.npz").restore(fresh)[0] == 1
    assert_same_state(fresh, expected)


def test_without_a_checkpoint_training_starts_at_the_beginning(tmp_path):
    assert Checkpoint(tmp_path / "checkpoint.npz").restore(build()) == (0, [])


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, monkeypatch, uninterrupted):
    train(tmp_path, 2)
    before = (tmp_path / "checkpoint.npz").read_bytes()
    with monkeypatch.context() as context:
        savez = np.savez

        def half(file, **arrays):
            savez(file, **dict(list(arrays.items())[:2]))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        context.setattr(np, "savez", half)
        with pytest.raises(OSError, match="No space left"):
            train(tmp_path, EPOCHS)
    assert (tmp_path / "checkpoint.npz").read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["checkpoint.npz", "history.csv"]
    assert_same_state(train(tmp_path, EPOCHS), uninterrupted[1])


def test_damaged_and_foreign_checkpoints(tmp_path):
    train(tmp_path, 1)
    path = tmp_path / "checkpoint.npz"
    smaller = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
    smaller.compile("adam", "mse")
    with pytest.raises(InputError, match=r"does not fit the model: it has \d+ variables"):
        Checkpoint(path).restore(smaller)
    Checkpoint(tmp_path / "small.npz").restore(smaller)
    x = np.ones((2, 6), "float32")
    smaller.fit(x, x[:, :1], verbose=0, callbacks=[Checkpoint(tmp_path / "small.npz")])
    wider = keras.Sequential([keras.Input((7,)), keras.layers.Dense(1)])
    wider.compile("adam", "mse")
    with pytest.raises(InputError, match=r"kernel of shape \[6, 1\]"):
        Checkpoint(tmp_path / "small.npz").restore(wider)
    whole = path.read_bytes()
    for damaged in (b"", b"no archive", whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="not a readable checkpoint"):
            Checkpoint(path).restore(build())


def test_checkpoint_errors(tmp_path):
    with pytest.raises(ValueError, match=r"must end in '\.npz'"):
        Checkpoint(tmp_path / "a.keras")
    with pytest.raises(ValueError, match="Compile the model"):
        training_variables(keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))


def test_replicas(tmp_path, two_replicas):
    dataset = tf.data.Dataset.from_tensor_slices((np.ones((8, 6), "float32"), np.ones((8, 1), "float32"))).batch(8)
    with two_replicas.scope():
        model = build()
    model.fit(dataset, shuffle=False, verbose=0, callbacks=[Checkpoint(tmp_path / "checkpoint.npz")])
    single = build()
    assert Checkpoint(tmp_path / "checkpoint.npz").restore(single)[0] == 1
    for one, two in zip(single.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)


# History, NaN


def test_history_columns_grow_and_stale_rows_go(tmp_path):
    writer = HistoryWriter(tmp_path / "history.csv")
    writer.on_train_begin()
    writer.on_epoch_end(0, {"loss": 1.5})
    writer.on_epoch_end(1, {"loss": 1.0, "bleu": np.float32(0.25)})
    assert history(tmp_path) == [
        {"epoch": "1", "loss": "1.5", "bleu": ""},
        {"epoch": "2", "loss": "1.0", "bleu": "0.25"},
    ]
    resumed = HistoryWriter(tmp_path / "history.csv", rows=[{"epoch": 1, "loss": 1.5}])
    resumed.on_train_begin()
    assert history(tmp_path) == [{"epoch": "1", "loss": "1.5"}]


def test_a_nan_loss_stops_the_training_and_leaves_the_checkpoint(tmp_path):
    class Poison(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_begin(self, batch, logs=None):
            if (self.epoch, batch) == (1, 2):
                self.model.layers[-1].kernel.assign(np.full((8, 1), np.nan))

    with pytest.raises(FloatingPointError, match=re.escape("The loss became nan in epoch 2, step 3.")):
        train(tmp_path, EPOCHS, extra=[Poison(), StopOnNaN()])
    restored = build()
    assert Checkpoint(tmp_path / "checkpoint.npz").restore(restored)[0] == 1
    assert all(np.isfinite(values).all() for values in state(restored))


def test_an_infinite_loss_stops_too():
    stop = StopOnNaN()
    stop.on_epoch_begin(0)
    stop.on_train_batch_end(0, {"loss": 1.0})
    with pytest.raises(FloatingPointError, match="inf in epoch 1, step 1"):
        stop.on_train_batch_end(0, {"loss": float("inf")})
