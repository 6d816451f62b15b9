"""Draws from the posterior at inference."""

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

# For reading and replacing a compiled function of a model; never held while a function is traced or run.
_LOCK = threading.Lock()


@contextlib.contextmanager
def posterior_draws(model, seed=None, temperature=None):
    """Make every stochastic layer of a model draw from its posterior at inference, as it does in training; dropout
    stays off.

    The context applies to the thread or coroutine that enters it. Every call of the layers draws there, and so do
    `predict`, `evaluate` and validation in `fit` of the model and of models inside it: Keras makes compiled functions
    for the context. Other threads do not draw. Contexts nest, and may be left in any order. Calls follow the
    innermost open context, `predict` and `evaluate` the innermost open context of their own model. After `compile`
    inside, enter a new context before `predict` or `evaluate`.

    The replica threads of `tf.distribute` do not inherit the context. Enter it inside the function that `strategy.run`
    runs; `predict` and `evaluate` of a model with several replicas raise ValueError.

    A `tf.function` of your own draws if and only if it was traced inside the context, in whatever thread it then runs.
    So does the compiled function of another model that shares layers with this one: for `predict` of a model enter a
    context with this model, not with one of its layers.

    Args:
        model: A `keras.Model` or layer.
        seed: `None` (every call draws anew), an integer or an int32 tensor of shape () or (2,), which may be an input
            of the `tf.function` that is traced inside the context. With a seed the same call gives the same draw, so
            two calls of one layer in a model share their noise; `keras_vattn.posterior_predictive` gives each call its
            own. The batches of `predict`, and those of `evaluate`, are numbered from the beginning of the context, and
            each number has other noise: a second `predict` continues the numbers, and a second context with this seed
            repeats the first. Such a `predict` needs `steps_per_execution=1`.
        temperature: Factor on sigma of the Gaussian layers, a number or scalar tensor; `None` for the layers' own.

    Raises:
        ValueError: If the model has no stochastic layer, or one of your own that is no `keras_vattn.StochasticLayer`.

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
    """Have the compiled functions of a model, and of models inside it, draw for a request."""
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
    """A compiled function of a model while contexts are entered: the model's own, and for each context one that draws,
    which only threads inside the context call.

    Args:
        model: A `keras.Model`.
        name: One of `NAMES`.
    """

    NAMES = ("train_function", "test_function", "predict_function")

    def __init__(self, model, name):
        self.model, self.name = model, name
        # By their requests, `None` for the model's own; a function that is `None` is made when it is first called.
        self.functions = {None: getattr(model, name)}

    @classmethod
    def wrap(cls, model, name):
        """Return the compiled function of a model."""
        function = getattr(model, name)
        return function if isinstance(function, cls) else cls(model, name)

    def add(self, request):
        """Take a request to draw."""
        self.functions[request] = None
        setattr(self.model, self.name, self)

    def remove(self, request):
        """Forget a request. After the last one the model has its own function again. Without one this object stays and
        makes it, because `predict` of another thread may be about to call it."""
        self.functions.pop(request, None)
        if len(self.functions) == 1 and self.functions[None] is not None:
            setattr(self.model, self.name, self.functions[None])

    def __call__(self, *arguments):
        with _LOCK:
            request = next((x for x in reversed(current_requests()) if x in self.functions), None)
            self.functions[request] = function = self.functions[request] or self._make_function(request)
        if request is not None and self.name != "train_function":
            self._check_options(request)
        return function(*arguments)

    def _make_function(self, request):
        """Return a function that Keras makes, which draws if there is a request."""
        getattr(self.model, f"make_{self.name}")(force=True)
        function = getattr(self.model, self.name)
        if len(self.functions) > 1:
            setattr(self.model, self.name, self)
        return function if request is None else _drawing_function(function, request.draws)

    def _check_options(self, request):
        num_replicas, num_steps = self.model.distribute_strategy.num_replicas_in_sync, self.model.steps_per_execution
        if num_replicas > 1 or (_is_seeded(request.draws) and num_steps > 1):
            raise ValueError(
                "Inside `posterior_draws` compiled functions draw with one replica, and from a seed with "
                f"steps_per_execution=1. Received: {num_replicas} replicas, steps_per_execution={num_steps}"
            )


def _drawing_function(function, draws):
    """Return a compiled function that draws, and numbers its calls: they are the batches of a seed."""
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
