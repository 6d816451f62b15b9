"""Provide a context in which a model samples from its posterior at inference."""

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

# Guards the compiled functions of all models. Release the lock before you trace or run a function.
_LOCK = threading.Lock()


@contextlib.contextmanager
def posterior_draws(model, seed=None, temperature=None):
    """Make the stochastic layers of a model sample at inference, as in training, but without dropout.

    Inside the context, the layers sample in every call. They also sample in `predict`, `evaluate` and the validation of
    `fit`, for the model and its inner models. To make `predict` sample, pass the model, not one of its layers.

    - The context applies only to the thread or coroutine that enters it.
    - Contexts can be nested, and can exit in any order. A call uses the innermost open context. `predict` and
      `evaluate` use the innermost open context of their model.
    - After a `compile` inside a context, enter a new context before `predict` or `evaluate`.
    - With `tf.distribute`, enter the context inside the function that `strategy.run` runs. With several replicas,
      `predict` and `evaluate` raise ValueError inside the context.
    - Your own `tf.function` samples in every thread if it was traced inside the context. Otherwise, it never samples.
      The same holds for `predict` and `evaluate` of another model that shares layers with `model`.

    Args:
        model: A `keras.Model` or layer.
        seed: Integer or int32 tensor of shape () or (2,), or `None` for new noise in every call. The tensor may be an
            input of a `tf.function` that is traced inside the context. With a seed, all calls of one layer use the same
            noise, even two calls in one model. (`keras_vattn.posterior_predictive` uses different noise.) In `predict`
            and `evaluate`, the noise of a batch depends on the seed and on the number of batches since the start of the
            context. So a second `predict` gives new noise. A second context with the same seed repeats the noise of the
            first context. With a seed, `predict` needs `steps_per_execution=1`.
        temperature: Number or scalar tensor that multiplies the standard deviation of Gaussian layers. `None` uses the
            temperature of each layer.

    Raises:
        ValueError: If the model has no stochastic layer, or if one of its stochastic layers is not a
            `keras_vattn.StochasticLayer`.

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
    """Inside the context, `fit`, `evaluate` and `predict` of a model and its inner models sample as `request` says."""
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
    """Replaces a compiled function of a model while a `posterior_draws` context is open. Threads inside the context
    call a function that samples. All other threads call the original function.

    Args:
        model: A `keras.Model`.
        name: One of `NAMES`.
    """

    NAMES = ("train_function", "test_function", "predict_function")

    def __init__(self, model, name):
        self.model, self.name = model, name
        # Keys: a request, or `None` for the original function. Values: the function, or `None` until it is compiled.
        self.functions = {None: getattr(model, name)}

    @classmethod
    def wrap(cls, model, name):
        """Return the `CompiledFunction` that replaces the function `name` of a model, or a new one."""
        function = getattr(model, name)
        return function if isinstance(function, cls) else cls(model, name)

    def add(self, request):
        self.functions[request] = None
        setattr(self.model, self.name, self)

    def remove(self, request):
        """Remove a request. After the last request, put the original function back into the model."""
        self.functions.pop(request, None)
        # Keep `self` if the original function is `None`: another thread may be about to call the attribute.
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
        getattr(self.model, f"make_{self.name}")(force=True)
        function = getattr(self.model, self.name)
        if len(self.functions) > 1:
            setattr(self.model, self.name, self)
        return function if request is None else _drawing_function(function, request.draws)

    def _check_options(self, request):
        num_replicas, num_steps = self.model.distribute_strategy.num_replicas_in_sync, self.model.steps_per_execution
        if num_replicas > 1 or (_is_seeded(request.draws) and num_steps > 1):
            raise ValueError(
                "Inside `posterior_draws`, compiled functions need one replica and, if a seed is set, "
                f"steps_per_execution=1. Received: {num_replicas} replicas, steps_per_execution={num_steps}"
            )


def _drawing_function(function, draws):
    """Return `function` with sampling. If a seed is set, every call uses different noise."""
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
