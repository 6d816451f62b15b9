"""Callbacks of the programs: what the log has of an epoch, plateaus, warm starts, the stop at a loss that is no number.

Keras's own lose their place when a run resumes: `EarlyStopping` and `ReduceLROnPlateau` forget the epochs before,
`TerminateOnNaN` lets the broken weights be saved, `BackupAndRestore` saves neither seeds nor a place in the epoch, and
`CSVLogger` has no columns for values that first appear late. Those here read the history of the `Checkpoint`.
"""

import math
import time

import keras
import numpy as np

from applications.common.checkpoint import row_of


class EpochLog(keras.callbacks.Callback):
    """Adds to the log of an epoch its wall time, the median wall time of its training steps, and the learning rate;
    raises `FloatingPointError` at the first batch whose loss is NaN or infinite.

    Args:
        checkpoint: The `Checkpoint` of this `fit`, which knows epoch and step. It stands after this one in the list, so
            that such weights are not saved.
    """

    def __init__(self, checkpoint):
        super().__init__()
        self.checkpoint = checkpoint

    def on_epoch_begin(self, epoch, logs=None):
        self._seconds = []

    def on_train_batch_begin(self, batch, logs=None):
        self._start = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        self._seconds.append(time.monotonic() - self._start)
        if not math.isfinite(logs["loss"]):
            epoch, step = self.checkpoint.epoch + 1, self.checkpoint.step + 1
            raise FloatingPointError(
                f"The loss became {logs['loss']} in epoch {epoch}, step {step}. The last checkpoint is kept. Look for "
                "such numbers in the data, lower the learning rate, clip gradients or train in float32."
            )

    def on_epoch_end(self, epoch, logs=None):
        logs["seconds"] = time.monotonic() - self.checkpoint.epoch_start
        logs["step_seconds"] = float(np.median(self._seconds))
        logs["learning_rate"] = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))


class Plateau(keras.callbacks.Callback):
    """Lowers the learning rate (schedule "plateau"), and stops the training, where epochs bring no better score.

    It stands before the `Checkpoint` of this `fit`, whose rows a resumed run has. The scores, for the learning rate and
    for early stopping, are functions of a row of the history, the smaller the better.
    """

    def __init__(self, checkpoint, options, score, stop_score):
        super().__init__()
        self.checkpoint = checkpoint
        self.options = options
        self.score = score
        self.stop_score = stop_score

    def on_epoch_end(self, epoch, logs=None):
        rows = [*self.checkpoint.rows, row_of(epoch, logs)]
        if self.options.schedule == "plateau":
            waited = epochs_without_better([self.score(row) for row in rows])
            if waited > self.options.patience:
                optimizer = self.model.optimizer
                optimizer.learning_rate.assign(optimizer.learning_rate * self.options.learning_rate_decay)
        if self.ends_after(rows):
            self.model.stop_training = True

    def ends_after(self, rows):
        """Return whether training ends after the epochs of these rows of the history."""
        limit = self.options.early_stopping
        return limit is not None and epochs_without_better([self.stop_score(row) for row in rows]) >= limit


def epochs_without_better(scores):
    """Return how many epochs ago the smallest score was; a score that is no finite number is skipped."""
    scores = np.where(np.isnan(scores), np.inf, scores)
    return len(scores) - 1 - int(np.argmin(scores)) if np.isfinite(scores).any() else 0


class WarmStart(keras.callbacks.Callback):
    """Marks in the log the epochs that end in a warm start, and trains the inference network alone in its last steps.

    These steps do not change the other weights. The optimizer sees all gradients, so the first step of the other
    weights is no larger than later ones.

    Args:
        weights: The trainable weights of the generative model.
        first: Steps of the optimizer before the inference network is trained alone.
        num_steps: Steps in which it is; may be 0.
    """

    def __init__(self, weights, first, num_steps):
        super().__init__()
        self.weights = weights
        self.first = first
        self.last = first + num_steps

    def on_train_begin(self, logs=None):
        self._remember()

    def on_train_batch_end(self, batch, logs=None):
        step = self._step()
        if step == self.first:
            self._remember()
        elif self.first < step <= self.last:
            for weight, value in zip(self.weights, self._values, strict=True):
                weight.assign(value)

    def on_epoch_end(self, epoch, logs=None):
        if self._step() <= self.last:
            logs["warm_start"] = 1.0

    def _step(self):
        return int(self.model.optimizer.iterations.numpy())

    def _remember(self):
        self._values = [weight.numpy() for weight in self.weights]


def posterior_callbacks(run, attention):
    """Return the callbacks of a model with an inference network, for the options `PosteriorOptions` of a `TrainingRun`;
    its models have `generative`, the weights of all else. A `keras_vattn.Attention` may have a warm start."""
    num_steps = run.options.alignment.posterior_steps
    first = getattr(attention, "warm_start_steps", 0)
    if num_steps:
        first = max(first, run.first_step)
    run.options.alignment.check_steps(first, run.num_steps)
    return [WarmStart(run.models.generative, first, num_steps)] if first or num_steps else []


def after_warm_start(name):
    """Return the function of a row of the history that is its column of this name, and infinite in a warm start."""
    return lambda row: math.inf if row.get("warm_start") else row[name]
