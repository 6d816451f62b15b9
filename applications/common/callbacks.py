"""Callbacks for resumable runs: `EpochLog`, `Plateau` and `WarmStart`.

After a resume, Keras's `EarlyStopping` and `ReduceLROnPlateau` would forget earlier epochs. `CSVLogger` would omit
values that first appear in a later epoch, and `TerminateOnNaN` does not prevent saving NaN weights.
"""

import math
import time

import keras
import numpy as np

from applications.common.checkpoint import row_of


class EpochLog(keras.callbacks.Callback):
    """Logs the seconds of each epoch, the median seconds of a training step, and the learning rate.

    Raises `FloatingPointError` at the first batch whose loss is NaN or infinite.

    Args:
        checkpoint: The `Checkpoint` of this `fit`. List `EpochLog` before `checkpoint` in the callbacks. Otherwise,
            `checkpoint` may save weights with a NaN loss.
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
                f"The loss is {logs['loss']} in epoch {epoch}, step {step}. The last checkpoint is unchanged. "
                "Check the data for NaN and infinity, lower the learning rate, clip gradients or train in float32."
            )

    def on_epoch_end(self, epoch, logs=None):
        logs["seconds"] = time.monotonic() - self.checkpoint.epoch_start
        logs["step_seconds"] = float(np.median(self._seconds))
        logs["learning_rate"] = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))


class Plateau(keras.callbacks.Callback):
    """Lowers the learning rate, or stops training, after epochs without a better score.

    List this callback before `Checkpoint`, which adds the current epoch to the history. `score` controls the learning
    rate of the schedule "plateau", and `stop_score` controls early stopping. Both map a history row to a number.
    Smaller numbers are better.
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
        """Return whether early stopping ends the training after the epochs in `rows`."""
        limit = self.options.early_stopping
        return limit is not None and epochs_without_better([self.stop_score(row) for row in rows]) >= limit


def epochs_without_better(scores):
    """Return the number of epochs since the smallest score; NaN scores are skipped."""
    scores = np.where(np.isnan(scores), np.inf, scores)
    return len(scores) - 1 - int(np.argmin(scores)) if np.isfinite(scores).any() else 0


class WarmStart(keras.callbacks.Callback):
    """Trains only the inference network for `num_steps` steps, after a warm start of `first` steps.

    In these `num_steps` steps, the callback restores `weights` after each update. The optimizer still receives the
    gradients of `weights`. Without these gradients, the moment estimates would be outdated, and the next update would
    be too large. Up to step `first + num_steps`, each epoch's log contains `warm_start`.

    Args:
        weights: The trainable weights of the generative model.
        first: Number of optimizer steps in the warm start.
        num_steps: Number of steps that train only the inference network; may be 0.
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
    """Return a list with a `WarmStart`, or an empty list without a warm start and posterior steps.
    `run` is a `TrainingRun` with `PosteriorOptions`. `run.models.generative` lists the trainable weights of the
    generative model. `attention` is the attention layer."""
    num_steps = run.options.alignment.posterior_steps
    first = getattr(attention, "warm_start_steps", 0)
    if num_steps:
        first = max(first, run.first_step)
    run.options.alignment.check_steps(first, run.num_steps)
    return [WarmStart(run.models.generative, first, num_steps)] if first or num_steps else []


def after_warm_start(name):
    """Return a score function for `Plateau`: the column `name`, or infinity during the warm start."""
    return lambda row: math.inf if row.get("warm_start") else row[name]
