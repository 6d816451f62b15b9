"""Requests to draw, which `keras_vattn.posterior_draws` and `keras_vattn.Sampler` store in one context variable.

A request belongs to the thread or coroutine that makes it, and ends everywhere when its context manager exits. A
function traced under a request always draws. A request has no effect on a function that is already traced.
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
    """Settings of the draws of a layer.

    Attributes:
        seed: int32 tensor (2,), or `None` to use the layer's own generator.
        temperature: Factor on sigma, or `None` to use the layer's own.
        batch: Integer variable with the index of the batch, in a compiled function of the model; else `None`.
    """

    seed: object = None
    temperature: object = None
    batch: object = None

    def seed_of_batch(self):
        """Return the seed of a call; every batch after the first folds its index into the seed."""
        if self.batch is None:
            return self.seed
        return tf.where(self.batch > 0, random.fold_in(self.seed, self.batch), self.seed)


class Seeds(NamedTuple):
    """Seeds of one call of a layer, determined once at its start.

    Attributes:
        noise: Seed of the noise, int32 (2,), or `None` if the call uses the mean.
        dropout: Seed of the dropout masks, int32 (2,), or `None` without dropout.
        training: Whether the call is in training mode, on which a warm start depends.
    """

    noise: object = None
    dropout: object = None
    training: bool = False

    def fold_in(self, number):
        """Return the seeds of the query chunk with this number."""
        noise, dropout = (None if x is None else random.fold_in(x, number) for x in self[:2])
        return Seeds(noise, dropout, self.training)


class Request:
    """A request to draw, which is active until its context manager exits.

    Attributes:
        draws: Dictionary from layers to their `Draws`, or to `None` for layers that use their mean.
        training: Dictionary from layers to the `training` argument of their calls: `True` for layers that apply
            dropout, `None` to keep the argument of the call.
        has_ended: Whether the context manager has exited. Copied contexts, such as an asyncio task's, may outlive it.
    """

    def __init__(self, draws, training):
        self.draws, self.training, self.has_ended = draws, training, False


@contextlib.contextmanager
def requested(draws, training=None):
    """Add a `Request` and yield it; it takes precedence over earlier requests."""
    request = Request(draws, training or {})
    _REQUESTS.set((*current_requests(), request))
    try:
        yield request
    finally:
        request.has_ended = True
        _REQUESTS.set(current_requests())


def current_requests():
    """Return the requests of this thread, the innermost last."""
    return tuple(x for x in _REQUESTS.get() if not x.has_ended)


def _innermost(name, layer):
    entries = (getattr(x, name) for x in reversed(current_requests()))
    return next((x[layer] for x in entries if layer in x), None)


# The property `draws` of stochastic layers: the innermost `Draws` of the layer, or `None` without a request.
DRAWS = property(lambda layer: _innermost("draws", layer))


def reads_requests(layer):
    """Return whether a Keras layer has the property `DRAWS` under the name `draws`."""
    return getattr(type(layer), "draws", None) is DRAWS


def training_requested(layer):
    """Return the `training` value requested for a layer, or `None` without a request."""
    return _innermost("training", layer)
