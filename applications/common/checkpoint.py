"""The files that a process leaves: the state of training, and the weights of the report.

Before a change: a run that resumes has to end as the uninterrupted one, bit for bit, so all that training changes is in
one file (`training_variables`, and the sums of the metrics). Variables are found by their place, shape and type, since
Keras numbers names through the process: their order is the format. The sums are added after the first batch, since
Keras resets metrics when an epoch begins. Weights and history are written before the state: after a kill in between
they are ahead of it, and the repeated steps write them again. Tested in tests/applications/common/test_callbacks.py and
test_resuming.py.
"""

import contextlib
import json
import math
import pathlib
import time
import zipfile

import keras
import numpy as np

from applications.common.errors import InputError
from applications.common.runs import replacing

# NumPy raises these for an archive that is cut off or damaged.
UNREADABLE = (OSError, ValueError, KeyError, EOFError, TypeError, RuntimeError, zipfile.BadZipFile)


class Checkpoint(keras.callbacks.Callback):
    """Saves the whole training state every so many steps and after each epoch, in one file and one atomic step.

    The state is: the model's variables, with the states of its `SeedGenerator`s, which `.keras` and `.weights.h5` files
    leave out; the optimizer's variables, a loss scale included; the sums of the metrics in this epoch; the
    epoch, the step, and the history. At any moment the file holds one complete state or does not exist: a killed
    process or a full disk leaves the previous one.

    A resumed `fit` repeats the uninterrupted one bit for bit if its data depend on nothing but the epoch and the step,
    if its metrics are sums, such as `keras.metrics.Mean`, and if no layer draws from Keras's or TensorFlow's global
    generator. Other callbacks' states, such as the patience of `EarlyStopping`, are not saved. Callbacks that add
    values to the log come before this one.

    Args:
        path: File to write, ending in ".npz".
        num_steps: Steps of a whole epoch; `None` where every epoch is one. An epoch that `fit` ends before is not
            finished: one that goes on takes the rest of it.
        every_steps: Steps between two states; `None` for epochs alone.
        every_seconds: Seconds before which no other state is saved, but the last one of `fit`.
        beside: Callbacks with a method `write`, which is called before each state is saved.
        cpu_start: Value of `time.process_time()` from which this process counts.

    Attributes:
        epoch: Number of epochs that the restored state has finished.
        step: Steps that it has taken in the epoch after these. Give the `fit` that goes on an epoch of so many fewer
            steps, and its data without their batches.
        rows: History rows of the finished epochs.
        unfinished: Row of an epoch that `fit` ended before, or `None`.
        seconds: Seconds that the epoch had taken.
        cpu_seconds: CPU time of the processes that came before this one, each until its last state.

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

    def __init__(self, path, num_steps=None, every_steps=None, every_seconds=0.0, beside=(), cpu_start=0.0):
        super().__init__()
        self.path = pathlib.Path(path)
        self.num_steps = num_steps
        self.every_steps = every_steps
        self.every_seconds = every_seconds
        self.beside = beside
        self.cpu_start = cpu_start
        self.epoch, self.step, self.rows, self.unfinished, self.seconds, self.cpu_seconds = 0, 0, [], None, 0.0, 0.0
        self._metrics, self._saved = None, -math.inf
        if not self.path.name.endswith(".npz"):
            raise ValueError(f"`path` must end in '.npz'. Received: path={str(self.path)!r}")

    def restore(self, model):
        """Put the saved state, if there is one, into a compiled, built model, made by the code that made the saved one.

        Raises:
            InputError: If the file is damaged or does not fit the model.
        """
        if not self.path.exists():
            return
        record, arrays, metrics = _read(self.path)
        variables = training_variables(model)
        mismatch = _mismatch(record["variables"], [_description(variable) for variable in variables])
        if mismatch:
            raise InputError(f"{self.path} does not fit the model: {mismatch}.")
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)
        self.epoch, self.step, self.rows = record["epoch"], record["step"], record["rows"]
        self.unfinished, self.seconds = record["unfinished"], record["seconds"]
        # A state of before there was this entry has none.
        self.cpu_seconds = record.get("cpu_seconds", 0.0)
        self._metrics = metrics if self.step else None

    def take_over(self, model, path):
        """Go on with the training of another model: put the shared part of its state into a compiled, built model.

        The weights, counts of calls and variables of the optimizer that have the same name are copied, and the epoch
        and the step; a layer that the other model has not counts its calls from that step on. The history and the seeds
        are the model's own.

        Args:
            model: The model.
            path: The checkpoint of the other one.

        Raises:
            InputError: If the file is damaged.
        """
        record, arrays, _ = _read(path)
        self.epoch, self.step = record["epoch"], record["step"]
        saved = {name: array for (name, *_), array in zip(record["variables"], arrays, strict=True)}
        for variable in training_variables(model):
            if variable.name == "training_calls":
                variable.assign(saved.get(variable.path, self.epoch * self.num_steps + self.step))
            elif variable.path in saved and variable.name != "seed_generator_state":
                variable.assign(saved[variable.path])

    def on_train_begin(self, logs=None):
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def on_epoch_begin(self, epoch, logs=None):
        self._start = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        if self._metrics is not None:
            # They are reset when an epoch begins, and some exist only after a step.
            for variable, array in zip(_metrics_variables(self.model), self._metrics, strict=True):
                # Replicas have a part each, to which TensorFlow adds nothing from outside.
                variable.assign(_to_numpy(variable) + array)
            self._metrics = None
        self.step += 1
        ends = batch + 1 == self.params["steps"]
        if ends and self.num_steps in (None, self.step):
            return  # The state after an epoch is saved with its row.
        if ends or (self.every_steps and self.step % self.every_steps == 0):
            # Validation will reset them.
            self._totals = [_to_numpy(variable) for variable in _metrics_variables(self.model)]
            self._save(self._totals, due=ends)

    def on_epoch_end(self, epoch, logs=None):
        if self.num_steps is not None and self.step < self.num_steps:
            self.unfinished = row_of(epoch, logs)
            self._save(self._totals, due=True)
            return
        self.rows.append(row_of(epoch, logs))
        self.epoch, self.step, self.unfinished, self.seconds = epoch + 1, 0, None, 0.0
        self._start = time.monotonic()
        self._save([], due=self.model.stop_training or self.epoch == self.params["epochs"])

    def cpu_so_far(self):
        """Return the CPU time of this process and of those before it."""
        return self.cpu_seconds + time.process_time() - self.cpu_start

    def _save(self, metrics, due):
        now = time.monotonic()
        if not due and now - self._saved < self.every_seconds:
            return
        for callback in self.beside:
            callback.write()
        variables = training_variables(self.model)
        record = {
            "epoch": self.epoch,
            "step": self.step,
            "rows": self.rows,
            "unfinished": self.unfinished,
            "seconds": self.seconds + now - self._start,
            "cpu_seconds": self.cpu_so_far(),
            "variables": [_description(variable) for variable in variables],
            "num_metrics": len(metrics),
        }
        arrays = {f"variable_{index:05d}": _to_numpy(variable) for index, variable in enumerate(variables)}
        arrays |= {f"metric_{index:05d}": array for index, array in enumerate(metrics)}
        arrays["record"] = np.frombuffer(json.dumps(record).encode(), "uint8")
        with replacing(self.path) as temporary, open(temporary, "xb") as file:
            np.savez(file, **arrays)
        self._saved = now


class KeepWeights(keras.callbacks.Callback):
    """Keeps the model's weights after each epoch that is the best so far, or after every one; `write` writes them.

    Args:
        path: File to write, ending in ".npz", as `read_weights` reads it. A resumed run has the one that it wrote.
        score: Function of a row of the history, the smaller the better.
        keep: "best" or "last".
    """

    def __init__(self, path, score, keep="best"):
        super().__init__()
        self.path = pathlib.Path(path)
        self.score = score
        self.keep = keep
        self.best = read_weights(self.path)[2]["score"] if self.path.exists() else math.inf
        self._arrays = None

    def on_epoch_end(self, epoch, logs=None):
        row = row_of(epoch, logs)
        score = float(self.score(row))
        if self.keep == "last" or score < self.best or math.isinf(self.best):
            self.best = math.inf if math.isnan(score) else score
            self._arrays = {f"weight_{index:05d}": _to_numpy(x) for index, x in enumerate(self.model.weights)}
            self._arrays["names"] = np.array([weight.path for weight in self.model.weights])
            record = json.dumps({"epoch": row["epoch"], "score": self.best, "row": row})
            self._arrays["record"] = np.frombuffer(record.encode(), "uint8")

    def write(self):
        """Write the weights, if they have changed since the last call."""
        if self._arrays is not None:
            with replacing(self.path) as temporary, open(temporary, "xb") as file:
                np.savez(file, **self._arrays)
            self._arrays = None


def read_weights(path):
    """Return names, arrays and the record of a file of `KeepWeights`; `InputError` if it cannot be read."""
    try:
        with open_archive(path) as archive:
            names = archive["names"].tolist()
            arrays = [archive[f"weight_{index:05d}"] for index in range(len(names))]
            return names, arrays, json.loads(archive["record"].tobytes())
    except UNREADABLE as error:
        raise InputError(f"{path} cannot be loaded: {error}") from error


@contextlib.contextmanager
def open_archive(path):
    """Open a NumPy archive for reading; another file raises one of the errors `UNREADABLE`."""
    # Opened here: NumPy leaves a file that it cannot read open, and takes any other content for a pickle.
    with open(path, "rb") as file:
        if not zipfile.is_zipfile(file):
            raise ValueError("it is no NumPy archive")
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            yield archive


def training_variables(model):
    """All variables that training changes: weights, optimizer, counters and seed states. The model must be compiled."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        raise ValueError("Compile the model before its training state is saved or restored.")
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    # `variables` has the states of the layers' seed generators, `weights` has not.
    return [*model.variables, *optimizer.variables]


def training_values(model):
    """Return the arrays of `training_variables`."""
    return [_to_numpy(variable) for variable in training_variables(model)]


def steps_of(path, num_steps):
    """Return how many steps of training a checkpoint follows; an epoch has `num_steps` steps."""
    record, *_ = _read(path)
    return record["epoch"] * num_steps + record["step"]


def _read(path):
    """Return the record of a checkpoint, the arrays of its variables and of the metrics."""
    try:
        with open_archive(path) as archive:
            record = json.loads(archive["record"].tobytes())
            arrays = [archive[f"variable_{index:05d}"] for index in range(len(record["variables"]))]
            return record, arrays, [archive[f"metric_{index:05d}"] for index in range(record["num_metrics"])]
    except UNREADABLE as error:
        raise InputError(f"{path} is not a readable checkpoint: {error}") from error


def _metrics_variables(model):
    # A layer in two parts of a model lists its variables twice.
    return list({id(variable): variable for variable in model.metrics_variables}.values())


def _description(variable):
    return [variable.path, list(variable.shape), str(variable.dtype)]


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


def row_of(epoch, logs):
    """Return the row of a history for the logs of an epoch."""
    return {"epoch": epoch + 1, **{name: float(value) for name, value in (logs or {}).items()}}
