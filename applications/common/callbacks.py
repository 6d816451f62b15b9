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
    """Saves the whole training state after each epoch, in one file and one atomic step.

    The state is: the model's variables, with the states of its `SeedGenerator`s, which `.keras` and `.weights.h5` files
    leave out; the optimizer's variables, a loss scale included; the epoch; and the history. At any moment the file
    holds one complete state or does not exist: a killed process or a full disk leaves the previous one.

    A resumed `fit` repeats the uninterrupted one bit for bit if its data depend on nothing but the epoch, and if no
    layer draws from Keras's or TensorFlow's global generator. Other callbacks' states, such as the patience of
    `EarlyStopping`, are not saved. Callbacks that add values to the log come before this one.

    Args:
        path: file to write, ending in ".npz".

    Raises:
        ValueError: if `path` does not end in ".npz".

    Example:

    >>> import tempfile
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("adam", "mse")
    >>> checkpoint = Checkpoint(tempfile.mkdtemp() + "/checkpoint.npz")
    >>> initial_epoch, rows = checkpoint.restore(model)
    >>> _ = model.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=3, initial_epoch=initial_epoch, verbose=0,
    ...               callbacks=[checkpoint])
    >>> checkpoint.restore(model)[0]
    3
    """

    def __init__(self, path):
        super().__init__()
        self.path = pathlib.Path(path)
        self.rows = []
        if not self.path.name.endswith(".npz"):
            raise ValueError(f"`path` must end in '.npz'. Received: path={str(self.path)!r}")

    def restore(self, model):
        """Puts the saved state into a compiled, built model.

        Args:
            model: `keras.Model`, made by the code that made the saved one.

        Returns:
            int, the `initial_epoch` for `fit` (0 without a checkpoint), and the list of history rows so far.

        Raises:
            InputError: if the file is damaged or does not fit the model.
        """
        if not self.path.exists():
            return 0, []
        try:
            with open(self.path, "rb") as file, np.load(file, allow_pickle=False) as archive:
                record = json.loads(archive["record"].tobytes())
                arrays = [archive[f"variable_{index:05d}"] for index in range(len(record["variables"]))]
        except UNREADABLE as error:
            raise InputError(f"{self.path} is not a readable checkpoint: {error}") from error
        variables = training_variables(model)
        mismatch = _mismatch(record["variables"], [_description(variable) for variable in variables])
        if mismatch:
            raise InputError(f"{self.path} does not fit the model: {mismatch}.")
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)
        self.rows = record["rows"]
        return record["epoch"], list(self.rows)

    def on_train_begin(self, logs=None):
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def on_epoch_end(self, epoch, logs=None):
        self.rows.append(_row(epoch, logs))
        variables = training_variables(self.model)
        record = {
            "epoch": epoch + 1,
            "rows": self.rows,
            "variables": [_description(variable) for variable in variables],
        }
        arrays = {f"variable_{index:05d}": _to_numpy(variable) for index, variable in enumerate(variables)}
        arrays["record"] = np.frombuffer(json.dumps(record).encode(), "uint8")
        with replacing(self.path) as temporary, open(temporary, "xb") as file:
            np.savez(file, **arrays)


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

    Raises:
        FloatingPointError: naming the epoch and the step, both counted from 1. The checkpoint of the last complete
            epoch is left as it is.
    """

    def __init__(self):
        super().__init__()
        self._epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        loss = (logs or {}).get("loss")
        if loss is not None and not math.isfinite(loss):
            raise FloatingPointError(
                f"The loss became {loss} in epoch {self._epoch + 1}, step {batch + 1}. The last checkpoint is kept. "
                "Lower the learning rate, clip the gradient (clipnorm), or train in float32."
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
        every_seconds: seconds between lines. Defaults to 10.
    """

    def __init__(self, every_seconds=10.0):
        super().__init__()
        self._every_seconds = every_seconds

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._last = epoch, time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        if time.monotonic() - self._last >= self._every_seconds:
            self._last = time.monotonic()
            steps, loss = self.params.get("steps"), (logs or {}).get("loss", math.nan)
            print(f"epoch {self._epoch + 1}: step {batch + 1}/{steps}, loss {loss:.4f}", file=sys.stderr, flush=True)


def training_variables(model):
    """All variables that training changes: weights, optimizer, counters and seed states. The model must be compiled."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        raise ValueError("Compile the model before its training state is saved or restored.")
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    # `variables` has the states of the layers' seed generators, `weights` has not.
    return [*model.variables, *optimizer.variables]


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
