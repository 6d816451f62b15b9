"""Draws from the posterior at inference."""

import contextlib
import dataclasses

import keras

from keras_vattn import random
from keras_vattn.draws.stochastic_layers import is_stochastic, stochastic_layers
from keras_vattn.support import keras_private

FUNCTIONS = ("predict_function", "test_function")


@dataclasses.dataclass(frozen=True)
class Draws:
    """How a marked layer draws: int32 seed (2,) and temperature, `None` for the layer's own."""

    seed: object = None
    temperature: object = None


@contextlib.contextmanager
def posterior_draws(model, seed=None, temperature=None):
    """Make every stochastic layer of a model draw from its posterior at inference, as it does in training; dropout
    stays off.

    The mark is on the layer instances, so it also holds in replica threads, and the compiled `predict`, `evaluate`
    functions of the model, and of models inside it, are set aside meanwhile. A `tf.function` of your own, and another
    model that shares layers with this one, must be traced inside the context to draw.

    Args:
        model: A `keras.Model` or layer.
        seed: `None` (every call draws anew), an integer or an int32 tensor of shape () or (2,), which may be an input
            of the `tf.function` that is traced inside the context. With a seed the same call gives the same draw,
            so the batches of one `predict`, and the calls of a layer that a model uses twice, share their noise: give
            the seed of each batch as an input to avoid the first, or use `keras_vattn.posterior_predictive`, which has
            neither.
        temperature: Factor on sigma of the Gaussian layers, a number or scalar tensor; `None` for the layers' own.

    Raises:
        ValueError: If the model has no stochastic layer.

    Example:

    >>> layer = keras_vattn.GaussianLatent(4)
    >>> x = keras.ops.ones((2, 3))
    >>> with keras_vattn.posterior_draws(layer, seed=1):
    ...     first, second = layer(x), layer(x)
    >>> bool(keras.ops.all(first == second)), bool(keras.ops.all(first == layer(x)))
    (True, False)
    """
    layers = [layer for layer in stochastic_layers(model) if is_stochastic(layer)]
    if not layers:
        raise ValueError(f"`posterior_draws` needs a model with a stochastic layer. Received: model={model}")
    base_seed = None if seed is None else random.as_seed(seed)
    # A model inside the model keeps compiled functions of its own.
    models = [layer for layer in keras_private.flatten_layers(model) if isinstance(layer, keras.Model)]
    functions = [(owner, name, getattr(owner, name, None)) for owner in models for name in FUNCTIONS]
    previous = [layer.draws for layer in layers]
    try:
        for owner, name, _ in functions:
            setattr(owner, name, None)
        for index, layer in enumerate(layers):
            layer_seed = None if base_seed is None else random.fold_in(base_seed, index)
            layer.draws = Draws(layer_seed, temperature)
        yield model
    finally:
        for layer, draws in zip(layers, previous, strict=True):
            layer.draws = draws
        for owner, name, function in functions:
            setattr(owner, name, function)
