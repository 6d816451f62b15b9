"""Callbacks of the programs: the training state, its history, progress, and the stop at a loss that is not a number."""

import csv
import io
import json
import math
import pathlib
import sys
import time
import zipfile

import keras
import numpy as np

from applications.common.errors import InputError
from applications.common.runs import replacing, write_text_atomically

# What NumPy raises for an archive that is cut off or damaged.
UNREADABLE = (OSError, ValueError, KeyError, EOFError, TypeError, RuntimeError, zipfile.BadZipFile)


class Checkpoint(keras.callbacks.Callback):
    """Saves the whole training state every so many steps and after each epoch, in one file and one atomic step.

    The state is: the model's variables, with the states of its `SeedGenerator`s, which `.keras` and `.weights.h5` files
    leave out; the optimizer's variables, a loss scale included; what the metrics have added up in this epoch; the
    epoch, the step, and the history. At any moment the file holds one complete state or does not exist: a killed
    process or a full disk leaves the previous one.

    A resumed `fit` repeats the uninterrupted one bit for bit if its data depend on nothing but the epoch and the step,
    if its metrics are sums, such as `keras.metrics.Mean`, and if no layer draws from Keras's or TensorFlow's global
    generator. Other callbacks' states, such as the patience of `EarlyStopping`, are not saved. Callbacks that add
    values to the log come before this one.

    Args:
        path: File to write, ending in ".npz".
        every_steps: Steps between two states; `None` for epochs alone.

    Attributes:
        epoch: Number of epochs that the restored state has finished.
        step: Steps that it has taken in the epoch after these. Give the `fit` that goes on an epoch of so many fewer
            steps, and its data without their batches.
        rows: History rows of the finished epochs.

    Raises:
        ValueError: If `path` does not end in ".npz".

    Example:

    >>> import tempfile
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("adam", "mse")
    >>> checkpoint = Checkpoint(tempfile.mkdtemp() + "/checkpoint.npz")
    >>> _ = model.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=3, verbose=0, callbacks=[checkpoint])
    >>> checkpoint.restore(model)
    >>> checkpoint.epoch, checkpoint.step
    (3, 0)
    """

    def __init__(self, path, every_steps=None):
        super().__init__()
        self.path = pathlib.Path(path)
        self.every_steps = every_steps
        self.epoch, self.step, self.rows = 0, 0, []
        self._metrics = None
        if not self.path.name.endswith(".npz"):
            raise ValueError(f"`path` must end in '.npz'. Received: path={str(self.path)!r}")

    def restore(self, model):
        """Put the saved state, if there is one, into a compiled, built model, made by the code that made the saved one.

        Raises:
            InputError: If the file is damaged or does not fit the model.
        """
        if not self.path.exists():
            return
        try:
            with open(self.path, "rb") as file, np.load(file, allow_pickle=False) as archive:
                record = json.loads(archive["record"].tobytes())
                arrays = [archive[f"variable_{index:05d}"] for index in range(len(record["variables"]))]
                metrics = [archive[f"metric_{index:05d}"] for index in range(record["num_metrics"])]
        except UNREADABLE as error:
            raise InputError(f"{self.path} is not a readable checkpoint: {error}") from error
        variables = training_variables(model)
        mismatch = _mismatch(record["variables"], [_description(variable) for variable in variables])
        if mismatch:
            raise InputError(f"{self.path} does not fit the model: {mismatch}.")
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)
        self.epoch, self.step, self.rows = record["epoch"], record["step"], record["rows"]
        self._metrics = metrics if self.step else None

    def on_train_begin(self, logs=None):
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def on_epoch_begin(self, epoch, logs=None):
        if epoch != self.epoch:
            self.epoch, self.step = epoch, 0

    def on_train_batch_end(self, batch, logs=None):
        if self._metrics is not None:
            # They are reset when an epoch begins, and some exist only after a step.
            for variable, array in zip(_metrics_variables(self.model), self._metrics, strict=True):
                variable.assign_add(array)
            self._metrics = None
        self.step += 1
        if self.every_steps and self.step % self.every_steps == 0:
            self._save()

    def on_epoch_end(self, epoch, logs=None):
        self.rows.append(_row(epoch, logs))
        self.epoch, self.step = epoch + 1, 0
        self._save()

    def _save(self):
        variables = training_variables(self.model)
        metrics = _metrics_variables(self.model) if self.step else []
        record = {
            "epoch": self.epoch,
            "step": self.step,
            "rows": self.rows,
            "variables": [_description(variable) for variable in variables],
            "num_metrics": len(metrics),
        }
        arrays = {f"variable_{index:05d}": _to_numpy(variable) for index, variable in enumerate(variables)}
        arrays |= {f"metric_{index:05d}": _to_numpy(variable) for index, variable in enumerate(metrics)}
        arrays["record"] = np.frombuffer(json.dumps(record).encode(), "uint8")
        with replacing(self.path) as temporary, open(temporary, "xb") as file:
            np.savez(file, **arrays)


class KeepWeights(keras.callbacks.Callback):
    """Writes the model's weights after each epoch that is the best so far, or after every one.

    Args:
        path: File to write, ending in ".npz", as `read_weights` reads it.
        keep: "best", of the smallest loss on validation, or "last".
        rows: History rows of a resumed run.
    """

    def __init__(self, path, keep="best", rows=()):
        super().__init__()
        self.path = pathlib.Path(path)
        self.keep = keep
        self.best = min((row["val_loss"] for row in rows), default=math.inf)

    def on_epoch_end(self, epoch, logs=None):
        loss = logs.get("val_loss", math.inf)
        if self.keep == "last" or loss < self.best or not self.path.exists():
            self.best = min(loss, self.best)
            write_weights(self.path, self.model)


def write_weights(path, model):
    """Write the weights of a model, and their names, in one atomic step."""
    arrays = {f"weight_{index:05d}": _to_numpy(weight) for index, weight in enumerate(model.weights)}
    arrays["names"] = np.array([weight.path for weight in model.weights])
    with replacing(path) as temporary, open(temporary, "xb") as file:
        np.savez(file, **arrays)


def read_weights(path):
    """Return what `write_weights` wrote, the names and the arrays; `InputError` if it cannot be read."""
    try:
        # Opened here: NumPy leaves one that it cannot read open.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            names = archive["names"].tolist()
            return names, [archive[f"weight_{index:05d}"] for index in range(len(names))]
    except UNREADABLE as error:
        raise InputError(f"{path} cannot be loaded: {error}") from error


class DecayOnPlateau(keras.callbacks.Callback):
    """Lowers the learning rate after each epoch whose loss on validation is not the best of more than `patience`.

    All it knows is the history, which a resumed run has.

    Args:
        factor: Factor on the learning rate.
        patience: Epochs without a better loss that are let pass.
        rows: History rows of a resumed run.
    """

    def __init__(self, factor, patience, rows):
        super().__init__()
        self.factor = factor
        self.patience = patience
        self.values = [row["val_loss"] for row in rows]

    def on_epoch_end(self, epoch, logs=None):
        self.values.append(logs["val_loss"])
        if epochs_without_better(self.values) > self.patience:
            self.model.optimizer.learning_rate.assign(self.model.optimizer.learning_rate * self.factor)


class StopEarly(keras.callbacks.Callback):
    """Stops after so many epochs without a better loss on validation; as `DecayOnPlateau` it knows the history."""

    def __init__(self, num_epochs, rows):
        super().__init__()
        self.num_epochs = num_epochs
        self.values = [row["val_loss"] for row in rows]

    def on_epoch_end(self, epoch, logs=None):
        self.values.append(logs["val_loss"])
        self.model.stop_training = epochs_without_better(self.values) >= self.num_epochs


def epochs_without_better(losses):
    """Return how many epochs ago the best loss was."""
    return len(losses) - 1 - int(np.argmin(losses)) if losses else 0


class LearningRate(keras.callbacks.Callback):
    """Adds the learning rate of the epoch's last step to the log."""

    def on_epoch_end(self, epoch, logs=None):
        logs["learning_rate"] = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))


class HistoryWriter(keras.callbacks.Callback):
    """Writes everything that `fit` logs to a CSV file, one row an epoch; epochs count from 1.

    The file is replaced as a whole after each epoch, so a value that first appears late gets a column in every row.

    Args:
        path: file to write.
        rows: history rows of a resumed run, from `Checkpoint.restore`. Rows of the file that are not among them belong
            to no checkpoint and are dropped.
    """

    def __init__(self, path, rows=()):
        super().__init__()
        self.path = pathlib.Path(path)
        self.rows = list(rows)

    def on_train_begin(self, logs=None):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.rows or self.path.exists():
            self.write()

    def on_epoch_end(self, epoch, logs=None):
        self.rows.append(_row(epoch, logs))
        self.write()

    def write(self):
        """Write the rows; a run that is resumed after its last epoch never begins to train."""
        columns = list(dict.fromkeys(["epoch", *(name for row in self.rows for name in row)]))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_text_atomically(self.path, text.getvalue())


class StopOnNaN(keras.callbacks.Callback):
    """Stops the training with an error at the first batch whose loss is NaN or infinite.

    Args:
        checkpoint: The `Checkpoint` of this `fit`, before this one in the list, which knows epoch and step.

    Raises:
        FloatingPointError: Naming the epoch and the step, both counted from 1. The checkpoint before is left as it is.
    """

    def __init__(self, checkpoint):
        super().__init__()
        self.checkpoint = checkpoint

    def on_train_batch_end(self, batch, logs=None):
        loss = (logs or {}).get("loss")
        if loss is not None and not math.isfinite(loss):
            raise FloatingPointError(
                f"The loss became {loss} in epoch {self.checkpoint.epoch + 1}, step {self.checkpoint.step + 1}. The "
                "last checkpoint is kept. Lower the learning rate, clip the gradient, or train in float32."
            )


class EpochSeconds(keras.callbacks.Callback):
    """Adds the wall time of each epoch to the log, so that a resumed run knows what all of its epochs took."""

    def on_epoch_begin(self, epoch, logs=None):
        self._start = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        logs["seconds"] = time.monotonic() - self._start


class StepSeconds(keras.callbacks.Callback):
    """Adds the median wall time of an epoch's training steps to the log, validation and other callbacks left out."""

    def on_epoch_begin(self, epoch, logs=None):
        self._seconds = []

    def on_train_batch_begin(self, batch, logs=None):
        self._start = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        self._seconds.append(time.monotonic() - self._start)

    def on_epoch_end(self, epoch, logs=None):
        logs["step_seconds"] = float(np.median(self._seconds))


class StepProgress(keras.callbacks.Callback):
    """Writes a line to standard error every few seconds of an epoch; `fit(verbose=2)` is silent until its end.

    Args:
        checkpoint: The `Checkpoint` of this `fit`, which knows the step.
        num_steps: Steps of an epoch.
        every_seconds: Seconds between lines. Defaults to 10.
    """

    def __init__(self, checkpoint, num_steps, every_seconds=10.0):
        super().__init__()
        self._checkpoint = checkpoint
        self._num_steps = num_steps
        self._every_seconds = every_seconds

    def on_epoch_begin(self, epoch, logs=None):
        self._start = self._last = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        now = time.monotonic()
        if now - self._last >= self._every_seconds:
            self._last = now
            step, left = self._checkpoint.step, self._num_steps - self._checkpoint.step
            figures = ", ".join(f"{name} {value:.4f}" for name, value in (logs or {}).items())
            seconds = left * (now - self._start) / (batch + 1)
            print(
                f"epoch {self._checkpoint.epoch + 1}: step {step}/{self._num_steps}, {figures}, {seconds:.0f} s left",
                file=sys.stderr,
                flush=True,
            )


def training_variables(model):
    """All variables that training changes: weights, optimizer, counters and seed states. The model must be compiled."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        raise ValueError("Compile the model before its training state is saved or restored.")
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    # `variables` has the states of the layers' seed generators, `weights` has not.
    return [*model.variables, *optimizer.variables]


def _metrics_variables(model):
    # A model has those of a layer that two of its parts hold twice.
    return list({id(variable): variable for variable in model.metrics_variables}.values())


def _description(variable):
    return [variable.name, list(variable.shape), str(variable.dtype)]


def _to_numpy(variable):
    array = keras.ops.convert_to_numpy(variable)
    # NumPy files hold no bfloat16 or float8; float32 holds all of their values.
    return array if array.dtype.kind in "biuf" else array.astype("float32")


def _mismatch(saved, expected):
    if len(saved) != len(expected):
        return f"it has {len(saved)} variables, the model and its optimizer have {len(expected)}"
    # Keras numbers its automatic names through the process: only shapes and types have to agree.
    for (name, *old), (new_name, *new) in zip(saved, expected, strict=True):
        if old != new:
            return f"it has {name} of shape {old[0]} and type {old[1]}, the model {new_name} of {new[0]} and {new[1]}"
    return None


def _row(epoch, logs):
    return {"epoch": epoch + 1, **{name: float(value) for name, value in (logs or {}).items()}}
