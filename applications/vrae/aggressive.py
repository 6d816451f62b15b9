"""Aggressive inference updates (He et al. 2019): the inference network is taken ahead of the decoder, as long as that
helps."""

import csv
import math
import pathlib

import keras
import numpy as np
import tensorflow as tf

from applications.text.pairs import padded
from applications.text.text import END, START


class AggressiveInference(keras.callbacks.Callback):
    """Before each update of all weights updates those of q alone, on other batches, until z_enc says no more of
    validation sentences than an epoch before.

    A decoder that learns faster than the encoder finds z_enc of no use, and does without it for good. The mutual
    information is that of the column `val_mutual_information`, which another callback adds to the log. The batches
    depend on the seed and the step alone, and the optimizer's state is the model's: a run that is resumed takes the
    same steps. Annealing counts these updates, too; the log's KLs are those of their batches as well; and the
    optimizer, whose count of steps they leave alone, takes the first ones up to twice as large as it would.

    Args:
        run: `Run`.
        num_updates: Before each update of all weights.
    """

    def __init__(self, run, num_updates):
        super().__init__()
        self.run = run
        self.num_updates = num_updates
        self.ids = sorted(run.data["train"].ids, key=len)
        found = _information(pathlib.Path(run.folder.path, "history.csv"))
        self.best = found[-1] if found else -math.inf
        # It has ended where the information did not grow.
        self.active = all(value > before for before, value in zip([-math.inf, *found], found))
        self._update = tf.function(self._update_inference, reduce_retracing=True)

    def on_train_batch_begin(self, batch, logs=None):
        if self.active:
            step = int(self.model.optimizer.iterations)
            for number in range(self.num_updates):
                self._update(*self._batch(step, number))

    def on_epoch_end(self, epoch, logs=None):
        value = logs.get("val_mutual_information")
        if self.active and value is not None:
            self.active, self.best = value > self.best, value

    def _batch(self, step, number):
        """Return inputs and targets of sentences of about one length."""
        size = min(self.run.options.fit.batch_size, len(self.ids))
        generator = np.random.default_rng((self.run.options.run.seed, step, number))
        start = int(generator.integers(len(self.ids) - size + 1))
        ids = self.ids[start : start + size]
        target = padded([[*row, END] for row in ids])
        inputs = {"source": padded(ids), "target_input": padded([[START, *row] for row in ids]), "target": target}
        return tf.nest.map_structure(tf.constant, (inputs, target))

    def _update_inference(self, inputs, target):
        model, optimizer = self.run.models.training, self.run.models.training.optimizer
        weights = self.run.models.inference_weights
        with tf.GradientTape() as tape:
            predicted = model(inputs, training=True)
            loss = model.compute_loss(x=inputs, y=target, y_pred=predicted, training=True)
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        if self.run.options.fit.clip_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, self.run.options.fit.clip_norm)
        rate = tf.cast(optimizer.learning_rate, tf.float32)
        for gradient, weight in zip(gradients, weights):
            # Without a step of the optimizer's own count, which the schedule follows.
            optimizer.update_step(gradient, weight, rate)


def _information(path):
    """Return the mutual information of the epochs that a history has, those that it was computed in."""
    if not path.exists():
        return []
    with open(path, encoding="utf-8", newline="") as file:
        values = [row.get("val_mutual_information") for row in csv.DictReader(file)]
    return [float(value) for value in values if value]
