"""Callbacks of the programs: history, learning rate, early stopping, the stop at a loss that is no number."""

import csv
import io
import math
import pathlib
import time

import keras
import numpy as np

from applications.common.checkpoint import row_of
from applications.common.runs import write_text_atomically


class DecayOnPlateau(keras.callbacks.Callback):
    """Lowers the learning rate after each epoch whose score is not the best of more than `patience` epochs.

    All it knows is the history, which a resumed run has.

    Args:
        factor: Factor on the learning rate.
        patience: Epochs without a better score that are let pass.
        scores: Those of the epochs of a resumed run.
        score: Function of a row of the history, the smaller the better.
    """

    def __init__(self, factor, patience, scores, score):
        super().__init__()
        self.factor = factor
        self.patience = patience
        self.scores = list(scores)
        self.score = score

    def on_epoch_end(self, epoch, logs=None):
        self.scores.append(self.score(row_of(epoch, logs)))
        if epochs_without_better(self.scores) > self.patience:
            self.model.optimizer.learning_rate.assign(self.model.optimizer.learning_rate * self.factor)


class StopEarly(keras.callbacks.Callback):
    """Stops after so many epochs without a better score; as `DecayOnPlateau` it knows the history."""

    def __init__(self, num_epochs, scores, score):
        super().__init__()
        self.num_epochs = num_epochs
        self.scores = list(scores)
        self.score = score

    def on_epoch_end(self, epoch, logs=None):
        self.scores.append(self.score(row_of(epoch, logs)))
        if epochs_without_better(self.scores) >= self.num_epochs:
            self.model.stop_training = True


def epochs_without_better(scores):
    """Return how many epochs ago the smallest score was; one that is no finite number is none."""
    scores = np.where(np.isnan(scores), np.inf, scores)
    return len(scores) - 1 - int(np.argmin(scores)) if np.isfinite(scores).any() else 0


class WarmStart(keras.callbacks.Callback):
    """Marks in the log the epochs in whose last step a `keras_vattn.Attention` had not left its warm start."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def on_epoch_end(self, epoch, logs=None):
        if int(self.attention.training_calls.numpy()) <= self.attention.warm_start_steps:
            logs["warm_start"] = 1.0


class PosteriorFirst(keras.callbacks.Callback):
    """Trains the inference network alone for some steps: each of them leaves the other weights as they were. The
    optimizer sees all gradients, so the first step of the other weights is no larger than later ones. An epoch that
    ends within these steps is marked in the log as one of a warm start.

    Args:
        weights: The trainable weights of the generative model.
        first: Steps of the optimizer before the first of these steps.
        num_steps: Their number.
    """

    def __init__(self, weights, first, num_steps):
        super().__init__()
        self.weights = weights
        self.first = first
        self.last = first + num_steps

    def on_train_begin(self, logs=None):
        self._remember()

    def on_train_batch_end(self, batch, logs=None):
        step = int(self.model.optimizer.iterations.numpy())
        if step == self.first:
            self._remember()
        elif self.first < step <= self.last:
            for weight, value in zip(self.weights, self._values, strict=True):
                weight.assign(value)

    def on_epoch_end(self, epoch, logs=None):
        if int(self.model.optimizer.iterations.numpy()) <= self.last:
            logs["warm_start"] = 1.0

    def _remember(self):
        self._values = [weight.numpy() for weight in self.weights]


def posterior_callbacks(run, attention=None):
    """Return the callbacks of a model with an inference network, for the options `PosteriorOptions` of a `TrainingRun`;
    its models have `generative`, the weights of all else.

    Args:
        run: `TrainingRun`.
        attention: The `keras_vattn.Attention` that has a warm start. Defaults to `None`, for none.
    """
    num_steps, callbacks = run.options.alignment.posterior_steps, []
    warm_start = getattr(attention, "warm_start_steps", 0)
    first = max(run.first_step if num_steps else 0, warm_start)
    run.options.alignment.check_steps(first, run.num_steps)
    if warm_start:
        callbacks.append(WarmStart(attention))
    if num_steps:
        callbacks.append(PosteriorFirst(run.models.generative, first, num_steps))
    return callbacks


def after_warm_start(name):
    """Return the function of a row of the history that is its column of this name, and infinite in a warm start."""
    return lambda row: math.inf if row.get("warm_start") else row[name]


class LearningRate(keras.callbacks.Callback):
    """Adds the learning rate after an epoch to the log."""

    def on_epoch_end(self, epoch, logs=None):
        logs["learning_rate"] = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))


class HistoryWriter(keras.callbacks.Callback):
    """Keeps everything that `fit` logs; `write` makes a CSV file of it, one row an epoch; epochs count from 1.

    The file is replaced as a whole, so a value that first appears late gets a column in every row.

    Args:
        path: File to write.

    Attributes:
        rows: The rows. A resumed run puts the rows of its checkpoint here; other rows of the file are dropped.
    """

    def __init__(self, path):
        super().__init__()
        self.path = pathlib.Path(path)
        self.rows = []

    def on_epoch_end(self, epoch, logs=None):
        self.rows.append(row_of(epoch, logs))

    def write(self):
        """Write the rows."""
        columns = list(dict.fromkeys(["epoch", *(name for row in self.rows for name in row)]))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_text_atomically(self.path, text.getvalue())


class StopOnNaN(keras.callbacks.Callback):
    """Stops the training with an error at the first batch whose loss is NaN or infinite.

    Args:
        checkpoint: The `Checkpoint` of this `fit`, which knows epoch and step. It stands after this one in the list, so
            that such weights are not saved.

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
                "last checkpoint is kept. Look for such numbers in the data, lower the learning rate, clip gradients "
                "or train in float32."
            )


class EpochSeconds(keras.callbacks.Callback):
    """Adds the wall time of each epoch to the log, so that a resumed run knows the time of all epochs.

    Args:
        checkpoint: The `Checkpoint` of this `fit`, which knows the time before a run was resumed within an epoch.
    """

    def __init__(self, checkpoint):
        super().__init__()
        self.checkpoint = checkpoint

    def on_epoch_begin(self, epoch, logs=None):
        self._start = time.monotonic() - self.checkpoint.seconds

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
