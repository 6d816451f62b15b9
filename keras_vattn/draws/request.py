"""The request to draw of `keras_vattn.posterior_draws` and `keras_vattn.Sampler`: the value of one context variable.

A request belongs to the thread or coroutine that makes it, and ends everywhere when its context manager exits. A
function that is traced under a request draws for good; calling a traced function under a request changes nothing.
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
    """How a layer draws.

    Attributes:
        seed: int32 tensor (2,), `None` for the layer's own generator.
        temperature: Factor on sigma, `None` for the layer's own.
        batch: Number of the batch in a compiled function of the model, an integer variable, else `None`.
    """

    seed: object = None
    temperature: object = None
    batch: object = None

    def seed_of_batch(self):
        """Return the seed of a call; every batch after the first has a seed of its own."""
        if self.batch is None:
            return self.seed
        return tf.where(self.batch > 0, random.fold_in(self.seed, self.batch), self.seed)


class Seeds(NamedTuple):
    """What a call draws from, decided once at its start.

    Attributes:
        noise: Seed of the noise, int32 (2,), `None` for a call that uses the mean.
        dropout: Seed of the dropout masks, int32 (2,), `None` for a call that does not drop.
        training: Whether the call trains: a warm start depends on it.
    """

    noise: object = None
    dropout: object = None
    training: bool = False

    def fold_in(self, number):
        """Return the seeds of a query chunk from its number."""
        noise, dropout = (None if x is None else random.fold_in(x, number) for x in self[:2])
        return Seeds(noise, dropout, self.training)


class Request:
    """A request to draw, from its context manager's entry to its exit.

    Attributes:
        draws: Dictionary from layers to their `Draws`; `None` for a layer that uses its mean.
        training: Dictionary from layers to the `training` of their calls: `True` for layers that drop, `None` for the
            call's own.
        has_ended: Whether the context manager has exited. A copy of the context, as a task has, may still hold it.
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


# The attribute `draws` of a class of layers: the innermost `Draws` of a layer, `None` without a request.
DRAWS = property(lambda layer: _innermost("draws", layer))


def reads_requests(layer):
    """Return whether `layer.draws` is the request to a layer, which may be any layer of Keras."""
    return getattr(type(layer), "draws", None) is DRAWS


def training_requested(layer):
    """Return the `training` that is requested of a layer, `None` without a request."""
    return _innermost("training", layer)
