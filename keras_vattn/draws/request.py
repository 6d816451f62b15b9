"""Define sampling requests, which `posterior_draws` and `Sampler` store in one context variable.

A request applies to the thread or coroutine that adds it, until its context manager exits. A function that is traced
under a request always samples. A request has no effect on a function that is already traced.
"""

import contextlib
import contextvars
import dataclasses
from typing import NamedTuple

import tensorflow as tf

from keras_vattn import random

_REQUESTS = contextvars.ContextVar("keras_vattn_draw_requests", default=())


@dataclasses.dataclass(frozen=True, eq=False)
class Draws:
    """The seed and the temperature with which a layer samples at inference.

    Attributes:
        seed: int32 tensor (2,), or `None` to use the seed generator of the layer.
        temperature: Factor that multiplies sigma, or `None` to use the temperature of the layer.
        batch: Integer variable, the index of the batch in a seeded `fit`, `evaluate` or `predict`. Otherwise `None`.
    """

    seed: object = None
    temperature: object = None
    batch: object = None

    def seed_of_batch(self):
        """Return the seed for the current batch: `seed` for batch 0, and `fold_in(seed, index)` for later batches."""
        if self.batch is None:
            return self.seed
        return tf.where(self.batch > 0, random.fold_in(self.seed, self.batch), self.seed)


class Seeds(NamedTuple):
    """Seeds of one call of a layer.

    Attributes:
        noise: Seed of the noise, int32 (2,), or `None` if the call uses the mean.
        dropout: Seed of the dropout masks, int32 (2,), or `None` without dropout.
        training: Whether the call is in training mode.
    """

    noise: object = None
    dropout: object = None
    training: bool = False

    def fold_in(self, number):
        """Return the seeds of the query chunk `number`."""
        noise, dropout = (None if x is None else random.fold_in(x, number) for x in self[:2])
        return Seeds(noise, dropout, self.training)


class Request:
    """A sampling request. It is active until its context manager exits.

    Attributes:
        draws: Dictionary that maps layers to `Draws`, or to `None` if the layer must use its mean.
        training: Dictionary from layers to the requested value of `training`. With `True`, the layer applies dropout.
            With `None`, the layer uses the value that its caller passes.
        has_ended: Whether the context manager has exited. An asyncio task may still have a copy of an ended request.
    """

    def __init__(self, draws, training):
        self.draws, self.training, self.has_ended = draws, training, False


@contextlib.contextmanager
def requested(draws, training=None):
    """Activate a `Request` until the context exits, and yield the request. It overrides earlier requests."""
    request = Request(draws, training or {})
    _REQUESTS.set((*current_requests(), request))
    try:
        yield request
    finally:
        request.has_ended = True
        _REQUESTS.set(current_requests())


def current_requests():
    """Return the active requests of this thread, the innermost request last."""
    return tuple(x for x in _REQUESTS.get() if not x.has_ended)


def _innermost(name, layer):
    entries = (getattr(x, name) for x in reversed(current_requests()))
    return next((x[layer] for x in entries if layer in x), None)


# The property `draws` of stochastic layers: `Draws` of the innermost request, or `None` without a request.
DRAWS = property(lambda layer: _innermost("draws", layer))


def reads_requests(layer):
    """Return whether a Keras layer reads sampling requests through the property `DRAWS`."""
    return getattr(type(layer), "draws", None) is DRAWS


def training_requested(layer):
    """Return `training` of the innermost request for a layer, or `None` without a request."""
    return _innermost("training", layer)
