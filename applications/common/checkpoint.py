"""Writes and reads the files of a training run: the training state, the history, and the weights for the report.

Variables are restored by position, because Keras numbers their names in each process. `keras.Model.get_state_tree`
is not used: it fails if metrics of two layers have the same name, such as two KLs.
"""

import contextlib
import csv
import io
import json
import math
import time
import zipfile

import keras
import numpy as np

from applications.common.errors import InputError
from applications.common.runs import CHECKPOINT, HISTORY, WEIGHTS, replacing, write_text_atomically

_UNREADABLE = (OSError, ValueError, KeyError, EOFError, TypeError, RuntimeError, zipfile.BadZipFile)


class Checkpoint(keras.callbacks.Callback):
    """Writes weights.npz, history.csv and the training state.

    It writes after each epoch and every `checkpoint_steps` steps. The state consists of the variables of the model and
    of the optimizer, the sums of the metrics in this epoch, the epoch, the step and the history. Each file is replaced
    atomically, and the state is written last. If the process is killed, the previous state remains. A resumed run
    repeats the steps after this state. If an epoch has only one step and `checkpoint_steps` is set, files are written
    every `checkpoint_steps` epochs and after the last epoch.

    A resumed `fit` reproduces an uninterrupted `fit` bit for bit under three conditions:
    - The data depend only on the epoch and the step.
    - Metrics store sums, as `keras.metrics.Mean` does.
    - No layer uses a global random generator.

    List callbacks that add values to the log, or change the optimizer, before this callback.

    Args:
        folder: `RunFolder`.
        num_steps: Number of steps in a full epoch. If `fit` ends within an epoch, the state stores the step reached.
        options: `FitOptions`; `checkpoint_steps` and `keep` are used.
        score: Function of an epoch's row in the history. The best weights are those of the smallest score.
        cpu_start: Value of `time.process_time()` at the start of the measured CPU time.

    Attributes:
        epoch: Number of finished epochs.
        step: Steps taken in the current epoch. A resumed `fit` skips the batches of these steps.
        rows: Rows of the history, one per epoch.
        epoch_start: Value of `time.monotonic()` when the epoch began, minus the seconds that it took before a resume.
    """

    def __init__(self, folder, num_steps, options, score, cpu_start=0.0):
        super().__init__()
        self.state_path, self.weights_path, self.history_path = map(folder.file, (CHECKPOINT, WEIGHTS, HISTORY))
        self.num_steps = num_steps
        self.every_steps = options.checkpoint_steps
        self.keep = options.keep
        self.score = score
        self.epoch, self.step, self.rows = 0, 0, []
        self._seconds, self._cpu_before, self._metrics = 0.0, -cpu_start, None
        self._best = read_weights(self.weights_path)[2]["score"] if self.weights_path.exists() else math.inf
        self._weights = None

    @property
    def steps_taken(self):
        """Number of training steps of the run so far."""
        return self.epoch * self.num_steps + self.step

    def cpu_seconds(self):
        """Return the CPU seconds of the run, without the time between a checkpoint and an interruption."""
        return self._cpu_before + time.process_time()

    def restore(self, model):
        """Load the saved state into a compiled model with a built optimizer. Raises `InputError` if shapes differ."""
        record, _, arrays, metrics = read_state(self.state_path)
        variables = training_variables(model)
        if [tuple(variable.shape) for variable in variables] != [array.shape for array in arrays]:
            raise InputError(
                f"{self.state_path} does not fit the model: config.yaml was changed, or the file comes from another "
                "version of the program. Train a new run."
            )
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)
        self.epoch, self.step, self.rows = record["epoch"], record["step"], record["rows"]
        self._seconds = record["seconds"]
        self._cpu_before += record.get("cpu_seconds", 0.0)
        self._metrics = metrics if self.step else None

    def take_over(self, model, state):
        """Copy the epoch, the step, and all variables that both models have, from another model's state.

        `state` is a result of `read_state`. `model` must be compiled and have a built optimizer. The history and the
        seeds are not copied. If `state` lacks a layer's call count, the count is set to `steps_taken`.
        """
        record, names, arrays, _ = state
        self.epoch, self.step = record["epoch"], record["step"]
        saved = dict(zip(names, arrays, strict=True))
        for variable in training_variables(model):
            if variable.name == "training_calls":
                variable.assign(saved.get(variable.path, self.steps_taken))
            elif variable.path in saved and variable.name != "seed_generator_state":
                variable.assign(saved[variable.path])

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch_start = time.monotonic() - self._seconds

    def on_train_batch_end(self, batch, logs=None):
        if self._metrics is not None:
            # Do not restore the metrics earlier: `fit` resets them before the first step, and creates some during it.
            for variable, array in zip(_metrics_variables(self.model), self._metrics, strict=True):
                # `numpy` returns the sum over replicas. `assign_add` would raise an error outside of a replica.
                variable.assign(variable.numpy() + array)
            self._metrics = None
        self.step += 1
        if self.step == self.num_steps:
            return
        if batch + 1 == self.params["steps"]:
            # Validation resets the metrics before `on_epoch_end`, so read them here.
            self._last_metrics = self._metrics_values()
        elif self._is_due():
            self._save(self._metrics_values())

    def on_epoch_end(self, epoch, logs=None):
        row = row_of(epoch, logs)
        self.rows.append(row)
        self._keep_weights(row)
        if self.step < self.num_steps:
            self._save(self._last_metrics)
            return
        self.epoch, self.step, self._seconds, self.epoch_start = epoch + 1, 0, 0.0, time.monotonic()
        ends = self.model.stop_training or self.epoch == self.params["epochs"]
        if ends or self.num_steps > 1 or self.every_steps is None or self._is_due():
            self._save([])

    def write_history(self):
        """Write history.csv. If an epoch lacks a column, its cell is empty."""
        columns = list(dict.fromkeys(["epoch", *(name for row in self.rows for name in row)]))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_text_atomically(self.history_path, text.getvalue())

    def _is_due(self):
        return self.every_steps is not None and self.steps_taken % self.every_steps == 0

    def _metrics_values(self):
        return [variable.numpy() for variable in _metrics_variables(self.model)]

    def _keep_weights(self, row):
        """Copy the weights if `keep` is "last" or the epoch is the best so far. `_save` writes them."""
        score = float(self.score(row))
        if self.keep == "last" or score < self._best or math.isinf(self._best):
            self._best = math.inf if math.isnan(score) else score
            weights = self.model.weights
            arrays = {f"weight_{index:05d}": weight.numpy() for index, weight in enumerate(weights)}
            arrays["names"] = np.array([weight.path for weight in weights])
            self._weights = arrays, {"epoch": row["epoch"], "score": self._best, "row": row}

    def _save(self, metrics):
        if self._weights is not None:
            _write_arrays(self.weights_path, *self._weights)
            self._weights = None
        self.write_history()
        variables = training_variables(self.model)
        record = {
            "epoch": self.epoch,
            "step": self.step,
            "rows": self.rows,
            "seconds": time.monotonic() - self.epoch_start,
            "cpu_seconds": self.cpu_seconds(),
            "variables": [variable.path for variable in variables],
        }
        arrays = {f"variable_{index:05d}": variable.numpy() for index, variable in enumerate(variables)}
        arrays |= {f"metric_{index:05d}": array for index, array in enumerate(metrics)}
        _write_arrays(self.state_path, arrays, record)


def row_of(epoch, logs):
    """Return a row of history.csv: the number of the epoch, counted from 1, and its logs as floats."""
    return {"epoch": epoch + 1, **{name: float(value) for name, value in logs.items()}}


def training_variables(model):
    """Return the variables of the model, including seed states, and of its optimizer."""
    # `model.weights` would omit the states of the seed generators.
    return [*model.variables, *model.optimizer.variables]


def read_state(path):
    """Read a training state. Return its record, the names and arrays of its variables, and metric sums."""
    with _reading(path):
        arrays = _arrays(path)
        record = _record_of(arrays)
        # In older files, `variables` lists (name, shape, dtype), and `unfinished` is the row of an unfinished epoch.
        names = [name if isinstance(name, str) else name[0] for name in record["variables"]]
        record["rows"] += [record["unfinished"]] if record.get("unfinished") else []
        variables = [arrays[f"variable_{index:05d}"] for index in range(len(names))]
    return record, names, variables, [array for name, array in arrays.items() if name.startswith("metric_")]


def read_weights(path):
    """Read weights.npz. Return the names and arrays of the weights, and the record of the epoch."""
    with _reading(path):
        arrays = _arrays(path)
        names = arrays["names"].tolist()
        return names, [arrays[f"weight_{index:05d}"] for index in range(len(names))], _record_of(arrays)


def read_arrays(path):
    """Return a dictionary of the arrays in an .npz file; raise `InputError` if the file cannot be read."""
    with _reading(path):
        return _arrays(path)


@contextlib.contextmanager
def _reading(path):
    """Convert the errors that NumPy raises for a damaged file to an `InputError`."""
    try:
        yield
    except _UNREADABLE as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _arrays(path):
    # NumPy would not close a file that it opened and cannot read.
    with open(path, "rb") as file, np.load(file) as archive:
        return dict(archive)


def _record_of(arrays):
    return json.loads(arrays["record"].tobytes())


def _write_arrays(path, arrays, record):
    with replacing(path) as temporary, open(temporary, "xb") as file:
        np.savez(file, **arrays, record=np.frombuffer(json.dumps(record).encode(), "uint8"))


def _metrics_variables(model):
    # Without this dictionary, the variables of a shared sublayer would occur twice.
    return list({id(variable): variable for variable in model.metrics_variables}.values())
