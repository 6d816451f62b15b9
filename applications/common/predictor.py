"""Computes predictions of a classifier: with mean attention, sampled attention, and sampled dropout masks.

Shapes: M samples, N examples, C classes.
"""

import dataclasses
import functools
import time
import typing

import keras
import numpy as np
import tensorflow as tf

import keras_vattn

_SEED = 0
_TIMED = 4


@dataclasses.dataclass
class Predictor:
    """Predicts the classes of a set of examples with one model.

    Attributes:
        labels: True classes (N,), -1 for an unknown class.
        batches: `tf.data.Dataset` of the examples: inputs, or tuples whose first element is the inputs.
        model: `keras.Model` that predicts with the mean attention weights.
        probabilities: Function from the model's outputs, concatenated over batches, to probabilities (..., N, C).
        drawn: `keras.Model` that samples its attention weights; `None` if the attention is deterministic.
        drops: Whether the model has dropout layers. The method `draws` can then sample dropout masks.
        max_rows: Argument `max_rows` of `keras_vattn.posterior_predictive`.
        samplers: Dictionary {(model, kind): `keras_vattn.Sampler`}. Predictors that share samplers trace a model once.
    """

    labels: np.ndarray
    batches: tf.data.Dataset
    model: keras.Model
    probabilities: typing.Callable
    drawn: keras.Model | None = None
    drops: bool = False
    max_rows: int = 256
    samplers: dict = dataclasses.field(default_factory=dict, repr=False)

    @property
    def kinds(self):
        """List of the kinds of noise: "dropout", "attention" and, if the model has both, "both"."""
        kinds = ["dropout"] if self.drops else []
        kinds += ["attention"] if self.drawn is not None else []
        return [*kinds, "both"] if len(kinds) == 2 else kinds

    def draws(self, num_draws, kind):
        """Return sampled probabilities (M, N, C), with M = `num_draws`; `kind` is an element of `kinds`."""
        return self.probabilities(self._drawn(self.batches, num_draws, kind))

    def _drawn(self, batches, num_draws, kind):
        key = self.model if kind == "dropout" else self.drawn, kind
        if key not in self.samplers:
            self.samplers[key] = keras_vattn.Sampler(key[0], kind != "attention", kind != "dropout")
        return self.samplers[key](batches, num_draws, seed=_SEED, max_rows=self.max_rows)

    def _at_mean(self, batches):
        inputs = (keras.utils.unpack_x_y_sample_weight(batch)[0] for batch in batches)
        return keras.tree.map_structure(lambda *x: np.concatenate(x), *map(self.model.predict_on_batch, inputs))

    def predictions(self, num_draws):
        """Return a dictionary of predictions, labels and times.
        - "labels": true classes (N,)
        - "mean": probabilities (1, N, C) at mean attention
        - each of `kinds`: sampled probabilities (M, N, C), with M = `num_draws`; omitted if `num_draws` is 0
        - "mean_ms" and so on: milliseconds per batch"""
        functions = {"mean": self._at_mean}
        if num_draws:
            functions |= {kind: functools.partial(self._drawn, num_draws=num_draws, kind=kind) for kind in self.kinds}
        # Batches may be sorted by size, so time about four evenly spaced batches.
        step = -(-sum(1 for _ in self.batches) // _TIMED)
        results, timed_batches = {"labels": self.labels}, self.batches.shard(step, step // 2).cache()
        count = sum(1 for _ in timed_batches)
        for kind, function in functions.items():
            probabilities = self.probabilities(function(self.batches))
            results[kind] = probabilities[None] if kind == "mean" else probabilities
            start = time.perf_counter()
            function(timed_batches)
            results[f"{kind}_ms"] = 1e3 * (time.perf_counter() - start) / count
        return results
