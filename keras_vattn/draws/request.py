"""The request to draw of `keras_vattn.posterior_draws` and `keras_vattn.Sampler`: the value of one context variable.

A request belongs to the thread, or the coroutine, that makes it. Nothing on a layer changes, and no thread waits. A
function that is traced under a request draws for good; calling a traced function under a request changes nothing.
"""

import contextlib
import contextvars
import dataclasses

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


@dataclasses.dataclass(frozen=True, eq=False)
class Request:
    """A request to draw.

    Attributes:
        draws: Dictionary from layers to their `Draws`.
        training: Dictionary from layers to the `training` of their calls: `True` for layers that drop.
    """

    draws: dict
    training: dict = dataclasses.field(default_factory=dict)

    @property
    def is_seeded(self):
        return any(x.seed is not None for x in self.draws.values())

    def with_batch(self, batch):
        """Return the request in which a variable holds the number of the batch."""
        return Request({layer: dataclasses.replace(x, batch=batch) for layer, x in self.draws.items()})


@contextlib.contextmanager
def requested(request):
    """Add a request, which takes precedence over earlier ones."""
    _REQUESTS.set((*_REQUESTS.get(), request))
    try:
        yield
    finally:
        _REQUESTS.set(tuple(x for x in _REQUESTS.get() if x is not request))


def current_requests():
    """Return the requests of this thread, the innermost last."""
    return _REQUESTS.get()


def _innermost(name, layer):
    return next((getattr(x, name)[layer] for x in reversed(_REQUESTS.get()) if layer in getattr(x, name)), None)


# The attribute `draws` of a class of layers: the innermost `Draws` of a layer, `None` without a request.
DRAWS = property(lambda layer: _innermost("draws", layer))


def reads_requests(layer):
    """Return whether `layer.draws` is the request to a layer, which may be any layer of Keras."""
    return getattr(type(layer), "draws", None) is DRAWS


def training_requested(layer):
    """Return the `training` that is requested of a layer, `None` without a request."""
    return _innermost("training", layer)
