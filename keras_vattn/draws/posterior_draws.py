"""Draws from the posterior at inference."""

import contextlib

import keras

from keras_vattn import random
from keras_vattn.draws.compiled_functions import make_by_marks
from keras_vattn.draws.marks import TURN, Draws
from keras_vattn.draws.stochastic_layers import drawing_layers
from keras_vattn.support import keras_private


@contextlib.contextmanager
def posterior_draws(model, seed=None, temperature=None):
    """Make every stochastic layer of a model draw from its posterior at inference, as it does in training; dropout
    stays off.

    The context applies to the thread that enters it, and to the replica threads that `tf.distribute` starts for this
    thread. There every call of the layers draws, and so do `predict`, `evaluate` and validation in `fit` of the model
    and of models inside it, whether compiled before or inside the context. Contexts nest, and may be left in any order:
    the innermost that is still entered counts. Coroutines of one thread share the context: await nothing inside.

    One thread draws at a time: another thread that enters a context, of whatever model, or begins a
    `posterior_predictive` waits until the first has left its last context. Inside a context, do not wait for such a
    thread. Trace a `tf.function` that enters a context before threads share it. Calls and compiled functions of the
    model in other threads go on without draws, and wait for nothing.

    A `tf.function` of your own draws if and only if it was traced inside the context, in whatever thread it then runs;
    so does the compiled function of another model that shares layers with this one.

    Args:
        model: A `keras.Model` or layer.
        seed: `None` (every call draws anew), an integer or an int32 tensor of shape () or (2,), which may be an input
            of the `tf.function` that is traced inside the context. With a seed the same call gives the same draw, so
            two calls of one layer in a model share their noise; `keras_vattn.posterior_predictive` gives each call its
            own. Each batch of a `predict` or `evaluate` has other noise (each call of the compiled function, where
            `steps_per_execution` puts several batches in one); the next `predict` repeats it.
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
    marks = {}
    for index, layer in enumerate(layers):
        marks[layer] = Draws(None if base_seed is None else random.fold_in(base_seed, index), temperature)
    with TURN.taken(marks):
        for layer in keras_private.flatten_layers(model):
            # A model inside the model keeps compiled functions of its own.
            if isinstance(layer, keras.Model):
                make_by_marks(layer)
        yield model
