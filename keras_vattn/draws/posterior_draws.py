"""A context in which a model draws from its posterior at inference."""

import contextlib
import dataclasses
import itertools
import threading

import keras
import tensorflow as tf

from keras_vattn import random
from keras_vattn.draws.request import Draws, current_requests, requested
from keras_vattn.draws.stochastic_layers import drawing_layers
from keras_vattn.support import keras_private

# Guards reads and replacements of compiled functions; it is not held while a function is traced or runs.
_LOCK = threading.Lock()


@contextlib.contextmanager
def posterior_draws(model, seed=None, temperature=None):
    """Make every stochastic layer of a model draw from its posterior at inference, as in training. Dropout stays off.

    The context applies to the thread or coroutine that enters it; other threads do not draw. Every call of the layers
    draws, and so do `predict`, `evaluate` and validation in `fit`, of the model and of its inner models: Keras compiles
    new functions for the context. Contexts nest, and may exit in any order. Calls follow the innermost open context;
    `predict` and `evaluate` follow the innermost open context of their own model. If you call `compile` inside, enter
    a new context before `predict` or `evaluate`.

    The replica threads of `tf.distribute` do not inherit the context. Enter it inside the function that `strategy.run`
    runs; `predict` and `evaluate` of a model with several replicas raise ValueError.

    A `tf.function` that you write draws if and only if it was traced inside the context, whichever thread runs it. The
    same holds for compiled functions of another model that shares layers with this one. To call `predict` of a model,
    enter the context with that model, not with one of its layers.

    Args:
        model: A `keras.Model` or layer.
        seed: `None` (every call draws anew), an integer or an int32 tensor of shape () or (2,), which may be an input
            of the `tf.function` that is traced inside the context. With a seed the same call gives the same draw, so
            two calls of one layer in a model share their noise; `keras_vattn.posterior_predictive` gives each call its
            own. Batches of `predict` (and of `evaluate`) are counted from the beginning of the context, and each has
            its own noise: a second `predict` continues the count, and a second context with this seed repeats the
            first. With a seed, `predict` needs `steps_per_execution=1`.
        temperature: Factor on sigma of the Gaussian layers, a number or scalar tensor; `None` for the layers' own.

    Raises:
        ValueError: If the model has no stochastic layer, or a custom one that is not a `keras_vattn.StochasticLayer`.

    Example:

    >>> layer = keras_vattn.GaussianLatent(4)
    >>> x = keras.ops.ones((2, 3))
    >>> with keras_vattn.posterior_draws(layer, seed=1):
    ...     first, second = layer(x), layer(x)
    >>> bool(keras.ops.all(first == second)), bool(keras.ops.all(first == layer(x)))
    (True, False)
    """
    layers = drawing_layers(model)
    if not layers:
        raise ValueError(f"`posterior_draws` needs a model with a stochastic layer. Received: model={model}")
    base_seed = None if seed is None else random.as_seed(seed)
    draws = {}
    for index, layer in enumerate(layers):
        draws[layer] = Draws(None if base_seed is None else random.fold_in(base_seed, index), temperature)
    with requested(draws) as request, compiled_functions(model, request):
        yield model


@contextlib.contextmanager
def compiled_functions(model, request):
    """Make the compiled functions of a model and of its inner models draw for a request."""
    models = [x for x in keras_private.flatten_layers(model) if isinstance(x, keras.Model)]
    names = CompiledFunction.NAMES if tf.executing_eagerly() else ()
    with _LOCK:
        for each in itertools.product(models, names):
            CompiledFunction.wrap(*each).add(request)
    try:
        yield
    finally:
        with _LOCK:
            for each in itertools.product(models, names):
                CompiledFunction.wrap(*each).remove(request)


class CompiledFunction:
    """A compiled function of a model while contexts are open. It calls the model's own function or, for threads inside
    a context, the drawing function of that context.

    Args:
        model: A `keras.Model`.
        name: One of `NAMES`.
    """

    NAMES = ("train_function", "test_function", "predict_function")

    def __init__(self, model, name):
        self.model, self.name = model, name
        # Functions by request, the model's own under `None`. A value of `None` is compiled at its first call.
        self.functions = {None: getattr(model, name)}

    @classmethod
    def wrap(cls, model, name):
        """Return a compiled function of a model as an object of this class."""
        function = getattr(model, name)
        return function if isinstance(function, cls) else cls(model, name)

    def add(self, request):
        """Add a request to draw."""
        self.functions[request] = None
        setattr(self.model, self.name, self)

    def remove(self, request):
        """Remove a request. After the last one the model gets its own function back. If that is not compiled yet, this
        object stays to compile it, because `predict` in another thread may be about to call it."""
        self.functions.pop(request, None)
        if len(self.functions) == 1 and self.functions[None] is not None:
            setattr(self.model, self.name, self.functions[None])

    def __call__(self, *arguments):
        with _LOCK:
            request = next((x for x in reversed(current_requests()) if x in self.functions), None)
            self.functions[request] = function = self.functions[request] or self._compiled_function(request)
        if request is not None and self.name != "train_function":
            self._check_options(request)
        return function(*arguments)

    def _compiled_function(self, request):
        """Return a function that Keras compiles, which draws if there is a request."""
        getattr(self.model, f"make_{self.name}")(force=True)
        function = getattr(self.model, self.name)
        if len(self.functions) > 1:
            setattr(self.model, self.name, self)
        return function if request is None else _drawing_function(function, request.draws)

    def _check_options(self, request):
        num_replicas, num_steps = self.model.distribute_strategy.num_replicas_in_sync, self.model.steps_per_execution
        if num_replicas > 1 or (_is_seeded(request.draws) and num_steps > 1):
            raise ValueError(
                "Inside `posterior_draws`, compiled functions need one replica, and with a seed "
                f"steps_per_execution=1. Received: {num_replicas} replicas, steps_per_execution={num_steps}"
            )


def _drawing_function(function, draws):
    """Return a compiled function that draws. With a seed it counts its calls, and each batch has its own noise."""
    batch = tf.Variable(-1, trainable=False, dtype="int64") if _is_seeded(draws) else None
    draws = {layer: dataclasses.replace(x, batch=batch) for layer, x in draws.items()}

    def call(*arguments):
        if batch is not None:
            batch.assign_add(1)
        with requested(draws):
            return function(*arguments)

    return call


def _is_seeded(draws):
    return any(x.seed is not None for x in draws.values())
