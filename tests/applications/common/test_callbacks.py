"""The training state: what a checkpoint holds, on models of a few weights."""

import itertools

import keras
import numpy as np
import pytest
from run_files import read_history

from applications.common.callbacks import HistoryWriter, PosteriorFirst, StopOnNaN, after_warm_start
from applications.common.checkpoint import Checkpoint, KeepWeights, read_weights, training_variables
from applications.common.errors import InputError


def build(precision="float32", units=8):
    """A model with everything that has a state: moving averages, seeds, an optimizer, perhaps a loss scale."""
    keras.utils.set_random_seed(0)
    policy = keras.DTypePolicy(precision)
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(units, activation="relu", dtype=policy),
            keras.layers.BatchNormalization(dtype=policy),
            keras.layers.Dropout(0.3, seed=1, dtype=policy),
            keras.layers.GaussianNoise(0.1, dtype=policy),
            keras.layers.Dense(1, dtype=policy),
        ]
    )
    optimizer = keras.optimizers.Adam(0.01)
    if precision == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=8.0, dynamic_growth_steps=3)
    model.compile(optimizer, "mse", metrics=["mae"], jit_compile=False)
    return model


def train(folder, epochs, precision="float32", extra=(), every_steps=None):
    """Train for so many epochs of three steps, or go on, as `training.fit` does."""
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(24, 6)).astype("float32"), generator.normal(size=(24, 1)).astype("float32")
    model = build(precision)
    history = HistoryWriter(folder / "history.csv")
    checkpoint = Checkpoint(folder / "checkpoint.npz", 3, every_steps, beside=(history,))
    checkpoint.restore(model)
    history.rows = list(checkpoint.rows)
    extra = [callback(checkpoint) for callback in extra]
    while checkpoint.epoch < epochs:
        rows = slice(8 * checkpoint.step, None)
        first = checkpoint.epoch
        model.fit(
            x[rows],
            y[rows],
            batch_size=8,
            initial_epoch=first,
            epochs=first + 1,
            shuffle=False,
            verbose=0,
            validation_data=(x, y),
            callbacks=[*extra, history, checkpoint],
        )
    return model


class Stop(keras.callbacks.Callback):
    """Stops in the third step of the third epoch."""

    def __init__(self, checkpoint):
        super().__init__()
        self.checkpoint = checkpoint

    def on_train_batch_end(self, batch, logs=None):
        if (self.checkpoint.epoch, self.checkpoint.step) == (2, 2):
            raise KeyboardInterrupt


def state(model):
    return [keras.ops.convert_to_numpy(variable) for variable in training_variables(model)]


def assert_same_state(one, other):
    assert len(state(one)) == len(state(other))
    for first, second in zip(state(one), state(other), strict=True):
        np.testing.assert_array_equal(first, second)


def test_a_stopped_training_ends_where_the_uninterrupted_one_does(tmp_path, eagerly):
    """What the metrics have added up, the seeds and the loss scale are part of it."""
    expected = train(tmp_path / "whole", 3, "mixed_float16")
    parts = tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        train(parts, 3, "mixed_float16", extra=[Stop], every_steps=1)
    assert len(read_history(parts)) == 2
    restored = Checkpoint(parts / "checkpoint.npz")
    model = build("mixed_float16")
    restored.restore(model)
    assert (restored.epoch, restored.step) == (2, 2)
    assert float(model.optimizer.dynamic_scale) > 8.0
    assert_same_state(train(parts, 3, "mixed_float16"), expected)
    assert read_history(parts) == read_history(tmp_path / "whole")
    assert {"loss", "mae", "val_loss", "val_mae"} < read_history(parts)[0].keys()


def test_a_metric_that_two_parts_hold_is_restored_once(tmp_path, eagerly):
    """The KL of a layer is among the model's metrics once for each part that holds the layer."""

    class Shared(keras.layers.Layer):
        def __init__(self, layer):
            super().__init__()
            self.layer, self.again = layer, layer
            self.tracker = layer.tracker

        def call(self, x):
            return self.layer(x)

    class Tracked(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.tracker = keras.metrics.Mean("size")

        def call(self, x):
            self.tracker.update_state(x)
            return x

    def made():
        inputs = keras.Input((1,))
        model = keras.Model(inputs, keras.layers.Dense(1)(Shared(Tracked())(inputs)))
        model.compile("sgd", "mse")
        return model

    x = np.array([[1.0], [2.0], [6.0]], "float32")
    model, checkpoint = made(), Checkpoint(tmp_path / "checkpoint.npz", every_steps=2)
    assert len(model.metrics_variables) > len({id(variable) for variable in model.metrics_variables})
    whole = model.fit(x, x, batch_size=1, shuffle=False, verbose=0).history
    with pytest.raises(KeyboardInterrupt):
        model.fit(x, x, batch_size=1, shuffle=False, verbose=0, callbacks=[_StopAfter(2), checkpoint])
    resumed, checkpoint = made(), Checkpoint(tmp_path / "checkpoint.npz")
    checkpoint.restore(resumed)
    found = resumed.fit(x[2:], x[2:], batch_size=1, shuffle=False, verbose=0, callbacks=[checkpoint]).history
    assert found["size"] == whole["size"] == [3.0]


class _StopAfter(keras.callbacks.Callback):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_batch_begin(self, batch, logs=None):
        if batch == self.step:
            raise KeyboardInterrupt


def test_bfloat16_variables_keep_their_bits(tmp_path, eagerly):
    expected = train(tmp_path, 1, "bfloat16")
    fresh = build("bfloat16")
    Checkpoint(tmp_path / "checkpoint.npz").restore(fresh)
    assert_same_state(fresh, expected)


def test_without_a_file_training_starts_at_the_beginning(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint.npz")
    checkpoint.restore(build())
    assert (checkpoint.epoch, checkpoint.step, checkpoint.rows) == (0, 0, [])


def test_damaged_and_foreign_files(tmp_path, eagerly):
    train(tmp_path, 1)
    path = tmp_path / "checkpoint.npz"
    smaller = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
    smaller.compile("adam", "mse")
    with pytest.raises(InputError, match=r"does not fit the model: it has \d+ variables"):
        Checkpoint(path).restore(smaller)
    with pytest.raises(InputError, match=r"kernel of shape \[6, 8\] and type float32, the model .*kernel of \[6, 7\]"):
        Checkpoint(path).restore(build(units=7))
    whole = path.read_bytes()
    for damaged in (b"", b"no archive", whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="not a readable checkpoint"):
            Checkpoint(path).restore(build())


def test_errors_of_a_checkpoint(tmp_path):
    with pytest.raises(ValueError, match=r"must end in '\.npz'"):
        Checkpoint(tmp_path / "a.keras")
    with pytest.raises(ValueError, match="Compile the model"):
        training_variables(keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))


def test_weights_and_their_names(tmp_path):
    model = build()
    keep = KeepWeights(tmp_path / "weights.npz", lambda row: row["val_loss"])
    keep.set_model(model)
    keep.on_epoch_end(4, {"val_loss": 0.5})
    assert not list(tmp_path.iterdir())
    keep.write()
    names, weights, record = read_weights(tmp_path / "weights.npz")
    assert record == {"epoch": 5, "score": 0.5, "row": {"epoch": 5, "val_loss": 0.5}}
    assert names == [weight.path for weight in model.weights]
    for one, other in zip(weights, model.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert [path.name for path in tmp_path.iterdir()] == ["weights.npz"]


def test_the_columns_of_a_history_grow_and_stale_rows_go(tmp_path):
    writer = HistoryWriter(tmp_path / "history.csv")
    writer.on_epoch_end(0, {"loss": 1.5})
    writer.on_epoch_end(1, {"loss": 1.0, "bleu": np.float32(0.25)})
    writer.write()
    assert (tmp_path / "history.csv").read_text() == "epoch,loss,bleu\n1,1.5,\n2,1.0,0.25\n"
    resumed = HistoryWriter(tmp_path / "history.csv")
    resumed.rows = [{"epoch": 1, "loss": 1.5}]
    resumed.write()
    assert (tmp_path / "history.csv").read_text() == "epoch,loss\n1,1.5\n"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_loss_that_is_no_number(tmp_path, eagerly, value):
    """It names the step, and the checkpoint before it is left."""

    class Poison(keras.callbacks.Callback):
        def __init__(self, checkpoint):
            super().__init__()
            self.checkpoint = checkpoint

        def on_train_batch_begin(self, batch, logs=None):
            if (self.checkpoint.epoch, self.checkpoint.step) == (1, 2):
                self.model.layers[-1].kernel.assign(np.full((8, 1), value))

    with pytest.raises(FloatingPointError, match=r"The loss became (nan|inf) in epoch 2, step 3\. The last checkpoint"):
        train(tmp_path, 3, extra=[Poison, StopOnNaN])
    restored = build()
    checkpoint = Checkpoint(tmp_path / "checkpoint.npz")
    checkpoint.restore(restored)
    assert checkpoint.epoch == 1
    assert all(np.isfinite(values).all() for values in state(restored))


def test_the_inference_network_is_trained_alone_for_some_steps():
    """Steps 2 and 3 move it alone; step 4 moves the rest, no further than Adam's rate. An epoch that ends before is
    none of the best."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse", run_eagerly=True)
    rest, posterior = (layer.trainable_weights for layer in model.layers)
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append([np.concatenate([weight.numpy().ravel() for weight in of]) for of in (rest, posterior)])

        def on_epoch_end(self, epoch, logs=None):
            rows.append(dict(logs))

    rows = []
    x = np.random.default_rng(0).normal(size=(2, 3))
    first = PosteriorFirst(rest, 1, 2)
    model.fit(x, np.ones((2, 1)), batch_size=1, epochs=2, shuffle=False, verbose=0, callbacks=[first, Watch()])
    # A run that goes on is told nothing of the steps before.
    model.fit(x, np.ones((2, 1)), batch_size=1, epochs=1, verbose=0, callbacks=[PosteriorFirst(rest, 4, 2), Watch()])
    moved = [[np.abs(one - other).max() for one, other in zip(*pair)] for pair in itertools.pairwise(seen)]
    of_rest, of_posterior = zip(*moved)
    np.testing.assert_array_equal(np.array(of_rest) > 0, [False, False, True, False, False])
    assert min(of_posterior) > 0 and 0 < of_rest[2] < 0.011
    score = after_warm_start("loss")
    assert [np.isinf(score(row)) for row in rows] == [True, False, True]
