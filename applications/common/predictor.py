"""Predictions of a classifier, at the mean of its attention and from draws.

Shapes: M draws, N examples, C classes.
"""

import dataclasses
import functools
import time
import typing

import keras
import numpy as np
import tensorflow as tf

import keras_vattn

# A fixed seed of draws, so that equal runs have equal reports.
_SEED = 0
# Number of timed batches.
_TIMED = 4


@dataclasses.dataclass
class Predictor:
    """A model, and examples whose classes it predicts.

    Attributes:
        labels: Right classes (N,), -1 for an unknown class.
        batches: `tf.data.Dataset` of the examples: inputs, or tuples whose first element is the inputs.
        model: `keras.Model` that predicts with the attention at its mean.
        probabilities: Function from the outputs for all batches to probabilities (..., N, C).
        drawn: `keras.Model` with stochastic attention; `None` if the attention is deterministic.
        drops: Whether the model has dropout.
        max_rows: As for `keras_vattn.posterior_predictive`.
        samplers: Traced samplers, shared by the predictors of several splits: {(model, kind): `keras_vattn.Sampler`}.
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
        """The model's kinds of randomness: "dropout" or "attention" if it has one, or both and "both"."""
        kinds = ["dropout"] if self.drops else []
        kinds += ["attention"] if self.drawn is not None else []
        return [*kinds, "both"] if len(kinds) == 2 else kinds

    def draws(self, num_draws, kind):
        """Return draws (M, N, C) of the probabilities for one of the `kinds`."""
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
        """Return a dictionary of "labels"; of the probabilities at the mean, "mean" (1, N, C), and in M draws of each
        kind (M, N, C), if `num_draws` is not 0; and of the mean milliseconds per batch, "mean_ms" and so on."""
        functions = {"mean": self._at_mean}
        if num_draws:
            functions |= {kind: functools.partial(self._drawn, num_draws=num_draws, kind=kind) for kind in self.kinds}
        # About four evenly spaced batches are timed, because batches may be sorted by size.
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
