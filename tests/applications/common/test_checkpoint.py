"""Tests the content of checkpoints, with models of a few weights."""

import io
import itertools

import keras
import numpy as np
import pytest
from run_files import read_history
from tiers import slow_after

from applications.common.callbacks import WarmStart, after_warm_start
from applications.common.checkpoint import Checkpoint, read_weights, training_variables
from applications.common.errors import InputError
from applications.common.options import FitOptions
from applications.common.runs import CHECKPOINT, RunFolder


def build(units=8):
    """Return a model with every kind of state: moving averages, seeds, an optimizer and a loss scale."""
    keras.utils.set_random_seed(0)
    policy = keras.DTypePolicy("mixed_float16")
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
    optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=8.0, dynamic_growth_steps=3)
    model.compile(optimizer, "mse", metrics=["mae"], jit_compile=False)
    optimizer.build(model.trainable_variables)
    return model


def checkpoint_in(path, num_steps=3, every_steps=None, keep="best"):
    options = FitOptions(checkpoint_steps=every_steps, keep=keep)
    return Checkpoint(RunFolder(path, {}), num_steps, options, lambda row: row["val_loss"])


def train(path, epochs, every_steps=None, extra=(), rows=24):
    """Train up to epoch `epochs` in steps of eight rows. If `path` contains a checkpoint, resume from it."""
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(rows, 6)).astype("float32"), generator.normal(size=(rows, 1)).astype("float32")
    model, checkpoint = build(), checkpoint_in(path, rows // 8, every_steps)
    if checkpoint.state_path.exists():
        checkpoint.restore(model)
    while checkpoint.epoch < epochs:
        begun = slice(8 * checkpoint.step, None)
        model.fit(
            x[begun],
            y[begun],
            batch_size=8,
            initial_epoch=checkpoint.epoch,
            epochs=checkpoint.epoch + 1 if checkpoint.step else epochs,
            shuffle=False,
            verbose=0,
            validation_data=(x, y),
            callbacks=[*(callback(checkpoint) for callback in extra), checkpoint],
        )
    return model


def stop_at(epoch, step):
    class Stop(keras.callbacks.Callback):
        def __init__(self, checkpoint):
            super().__init__()
            self.checkpoint = checkpoint

        def on_train_batch_end(self, batch, logs=None):
            if (self.checkpoint.epoch, self.checkpoint.step) == (epoch, step):
                raise KeyboardInterrupt

    return Stop


def assert_same_state(one, other):
    for first, second in zip(training_variables(one), training_variables(other), strict=True):
        np.testing.assert_array_equal(first.numpy(), second.numpy())


@pytest.mark.slow
def test_a_stopped_training_ends_where_the_uninterrupted_one_does(tmp_path, eagerly):
    """Resuming also restores the running sums of metrics, the seeds and the loss scale."""
    whole_run, stopped = tmp_path / "whole", tmp_path / "parts"
    expected = train(whole_run, 3)
    with pytest.raises(KeyboardInterrupt):
        train(stopped, 3, every_steps=1, extra=[stop_at(2, 2)])
    assert len(read_history(stopped)) == 2
    restored, model = checkpoint_in(stopped), build()
    restored.restore(model)
    assert (restored.epoch, restored.step) == (2, 2)
    assert float(model.optimizer.dynamic_scale) > 8.0
    assert_same_state(train(stopped, 3), expected)
    assert read_history(stopped) == read_history(whole_run)
    assert {"loss", "mae", "val_loss", "val_mae"} < read_history(stopped)[0].keys()


@pytest.mark.parametrize(("every_steps", "epoch"), slow_after([(3, 3), (None, 5)]))
def test_epochs_of_one_step(tmp_path, eagerly, every_steps, epoch):
    """If an epoch has one step, the state is saved every `checkpoint_steps` steps and after the last epoch."""
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, 9, every_steps, extra=[stop_at(5, 0)], rows=8)
    restored = checkpoint_in(tmp_path, 1)
    restored.restore(build())
    assert (restored.epoch, len(read_history(tmp_path))) == (epoch, epoch)
    model = train(tmp_path, 8, every_steps, rows=8)
    assert_same_state(train(tmp_path, 8, rows=8), model)
    assert len(read_history(tmp_path)) == 8


def test_a_metric_of_two_layers_is_restored_once(tmp_path, eagerly):
    """Two layers contain the same tracker, so Keras lists the tracker twice among the metrics. It is restored once."""

    class Tracked(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.tracker = keras.metrics.Mean("size")

        def call(self, x):
            self.tracker.update_state(x)
            return x

    class Shared(keras.layers.Layer):
        def __init__(self, layer):
            super().__init__()
            self.layer, self.again = layer, layer
            self.tracker = layer.tracker

        def call(self, x):
            return self.layer(x)

    def build_model():
        inputs = keras.Input((1,))
        model = keras.Model(inputs, keras.layers.Dense(1)(Shared(Tracked())(inputs)))
        model.compile("sgd", "mse")
        model.optimizer.build(model.trainable_variables)
        return model

    x = np.array([[1.0], [2.0], [6.0]], "float32")
    options = {"batch_size": 1, "shuffle": False, "verbose": 0, "validation_data": (x, x)}
    model, checkpoint = build_model(), checkpoint_in(tmp_path, every_steps=2)
    assert len(model.metrics_variables) > len({id(variable) for variable in model.metrics_variables})
    whole_run = model.fit(x, x, **options).history
    with pytest.raises(KeyboardInterrupt):
        build_model().fit(x, x, callbacks=[stop_at(0, 2)(checkpoint), checkpoint], **options)
    resumed, checkpoint = build_model(), checkpoint_in(tmp_path)
    checkpoint.restore(resumed)
    sizes = resumed.fit(x[2:], x[2:], callbacks=[checkpoint], **options).history["size"]
    assert sizes == whole_run["size"] == [3.0]


def test_a_state_of_another_model(tmp_path, eagerly):
    train(tmp_path, 1)
    with pytest.raises(InputError, match=r"checkpoint\.npz does not fit the model: config\.yaml was changed"):
        checkpoint_in(tmp_path).restore(build(units=7))
    path = tmp_path / CHECKPOINT
    state = path.read_bytes()
    foreign = io.BytesIO()
    np.savez(foreign, record=np.zeros(3, "uint8"))
    for damaged in (b"", b"no archive", state[: len(state) // 2], foreign.getvalue()):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"checkpoint\.npz cannot be read"):
            checkpoint_in(tmp_path).restore(build())


def test_the_weights_of_the_best_epoch(tmp_path):
    """A resumed run reads the best score from weights.npz. The first epoch is stored even if its score is NaN."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.optimizer.build(model.trainable_variables)
    for epoch, (loss, best_epoch) in enumerate([(np.nan, 0.0), (2.0, 1.0), (2.5, 1.0), (0.5, 3.0), (0.5, 3.0)]):
        checkpoint = checkpoint_in(tmp_path, num_steps=0)
        checkpoint.set_model(model)
        checkpoint.set_params({"epochs": 9})
        model.set_weights([np.full((1, 1), float(epoch)), np.zeros(1)])
        model.stop_training = True
        checkpoint.on_epoch_begin(epoch)
        checkpoint.on_epoch_end(epoch, {"val_loss": loss})
        names, (kernel, _), record = read_weights(tmp_path / "weights.npz")
        assert kernel.item() == best_epoch
        assert record["epoch"] == best_epoch + 1 and record["row"]["epoch"] == best_epoch + 1
    assert names == [weight.path for weight in model.weights]


def test_a_column_that_appears_late(tmp_path):
    checkpoint = checkpoint_in(tmp_path)
    checkpoint.rows = [{"epoch": 1, "loss": 1.5}, {"epoch": 2, "loss": 1.0, "bleu": 0.25}]
    checkpoint.write_history()
    assert (tmp_path / "history.csv").read_text() == "epoch,loss,bleu\n1,1.5,\n2,1.0,0.25\n"


def test_the_inference_network_is_trained_alone_for_some_steps():
    """Only the inference network changes in steps 2 and 3. Step 4 changes the other weights by at most Adam's learning
    rate. An epoch that ends during the warm start cannot be the best epoch."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse", run_eagerly=True)
    rest, posterior = (layer.trainable_weights for layer in model.layers)
    weights, rows = [], []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            weights.append([np.concatenate([weight.numpy().ravel() for weight in x]) for x in (rest, posterior)])

        def on_epoch_end(self, epoch, logs=None):
            rows.append(dict(logs))

    x = np.random.default_rng(0).normal(size=(2, 3))
    first = WarmStart(rest, 1, 2)
    model.fit(x, np.ones((2, 1)), batch_size=1, epochs=2, shuffle=False, verbose=0, callbacks=[first, Watch()])
    # A resumed run has no record of earlier steps.
    model.fit(x, np.ones((2, 1)), batch_size=1, epochs=1, verbose=0, callbacks=[WarmStart(rest, 4, 2), Watch()])
    moved = [[np.abs(one - other).max() for one, other in zip(*pair)] for pair in itertools.pairwise(weights)]
    rest_steps, posterior_steps = zip(*moved)
    np.testing.assert_array_equal(np.array(rest_steps) > 0, [False, False, True, False, False])
    assert min(posterior_steps) > 0 and 0 < rest_steps[2] < 0.011
    score = after_warm_start("loss")
    assert [np.isinf(score(row)) for row in rows] == [True, False, True]
