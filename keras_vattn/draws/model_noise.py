"""All the noise of a model as a function of one seed, or of a stack of seeds with one for each part of the batch."""

import contextlib
import functools
import inspect
import itertools
import numbers
import threading

import keras
import tensorflow as tf
from keras import layers

from keras_vattn import random
from keras_vattn.draws.posterior_draws import posterior_draws
from keras_vattn.draws.seed_stacks import KERAS_DROPOUTS, is_of_keras, takes_stacks
from keras_vattn.draws.stochastic_layers import drawing_layers
from keras_vattn.support import keras_private

RATES = ("rate", "dropout", "recurrent_dropout", "feature_dropout", "dropout_rate")

# For all models: they may share layers, and what is done under it, tracing, runs one thread at a time anyway.
PATCHING = threading.RLock()


class ModelNoise:
    """Which layers of a model draw and drop, and how to make them draw from given seeds.

    Args:
        model: A `keras.Model` or layer.
        dropout: Whether layers drop.
        posterior: Whether stochastic layers draw. Defaults to `True`.

    Raises:
        ValueError: If nothing in the model would be random, or a layer cannot see that it is to draw.
    """

    def __init__(self, model, dropout, posterior=True):
        self.model = model
        self.layers = keras_private.flatten_layers(model)
        self.dropping = [layer for layer in self.layers if dropout and has_dropout(layer)]
        self.is_stochastic = posterior and bool(drawing_layers(model))
        if not self.is_stochastic and not self.dropping:
            raise ValueError(
                "`posterior_predictive` needs a model with a stochastic layer, or with dropout and dropout=True. "
                f"Received: model={model}, dropout={dropout}, posterior={posterior}"
            )

    @property
    def takes_stacks(self):
        """Whether a stack of seeds gives every part of the batch the very noise that its seed alone would give."""
        return all(takes_stacks(layer, layer in self.dropping) for layer in self.layers)

    @contextlib.contextmanager
    def drawn_from(self, seeds):
        """Make every call of the model in this thread draw from these seeds, and change none of its variables. Another
        thread that asks for it, of whatever model, waits for the end.

        Args:
            seeds: int32 tensor of shape (2,), or a stack (K, 2) for a batch whose K-th parts are K draws.
        """
        with contextlib.ExitStack() as stack:
            # Two at once would each take the other's methods for the layers' own.
            stack.enter_context(PATCHING)
            stack.enter_context(keras.StatelessScope(collect_losses=True, initialize_variables=False))
            if self.is_stochastic:
                # Without a seed of its own every layer asks its generator.
                stack.enter_context(posterior_draws(self.model))
            stacked, count = len(seeds.shape) == 2, itertools.count()
            for layer in self.layers:
                # Keras makes the masks of a recurrent layer at inference too, and leaves them unused.
                idle = stacked and is_of_keras(layer) and layer not in self.dropping
                next_seed = seed_sequence(seeds[0] if idle else seeds, count)
                for generator in keras_private.seed_generators(layer):
                    stack.enter_context(replaced(generator, "next", next_seed))
            for layer in self.layers:
                if isinstance(layer, layers.BatchNormalization):
                    stack.enter_context(replaced(layer, "call", with_training(layer.call, False)))
            for layer in self.dropping:
                stack.enter_context(replaced(layer, *dropping_method(layer, stacked)))
            yield


def has_dropout(layer):
    """Return whether the layer itself, the cell that it runs or a part of a recurrent decoder drops in training."""
    owners = [layer, getattr(layer, "cell", None)]
    owners = [x for x in owners if isinstance(x, keras.Layer) and keras_private.seed_generators(x)]
    if hasattr(layer, "draw_noise") and hasattr(layer, "parts"):
        owners += layer.parts()
    rates = [getattr(owner, name, None) for owner in owners for name in RATES]
    return any(isinstance(rate, numbers.Real) and rate > 0 for rate in rates)


def seed_sequence(seeds, count):
    """Return what `SeedGenerator.next` does, with new seeds of `seeds` at every call."""

    def next_seed(ordered=True):
        return tf.bitcast(random.fold_in(seeds, next(count)), tf.uint32)

    return next_seed


def dropping_method(layer, stacked):
    """Return the name of the method of a layer that decides on dropout, and one that drops."""
    if hasattr(layer, "draw_noise"):
        return "draw_noise", with_dropout_noise(layer.draw_noise)
    dropping = with_training(layer.call, True)
    if stacked and isinstance(layer, KERAS_DROPOUTS):
        return "call", part_by_part(dropping, layer.seed_generator)
    return "call", dropping


def with_training(call, training):
    """Return a call of a layer whose `training`, if it takes one, is fixed."""
    if "training" not in inspect.signature(call).parameters:
        return call

    @functools.wraps(call)
    def fixed(*args, **kwargs):
        return call(*args, **{**kwargs, "training": training})

    return fixed


def with_dropout_noise(draw_noise):
    """Return the `draw_noise` of an attention layer or decoder with the dropout, and nothing else, of training."""

    @functools.wraps(draw_noise)
    def dropping(*args, **kwargs):
        noise = draw_noise(*args, **kwargs)
        arguments = inspect.signature(draw_noise).bind(*args, **kwargs).arguments
        in_training = draw_noise(**{**arguments, "training": True})
        return with_masks(noise, in_training)

    return dropping


def with_masks(noise, in_training):
    """Return a dictionary of noise, nested or not, with the masks of dropout of another one."""
    together = dict(noise)
    for name, entry in in_training.items():
        if isinstance(entry, dict):
            inner = with_masks(noise.get(name, {}), entry)
            if inner or name in noise:
                together[name] = inner
        elif name == "dropout" or name.endswith("_dropout"):
            together[name] = entry
    return together


def part_by_part(call, generator):
    """Return the call of a Keras dropout layer that takes a stack of seeds: one call for each part of the batch."""

    @functools.wraps(call)
    def split(inputs, *args, **kwargs):
        seeds = tf.bitcast(generator.next(), tf.int32)
        shape = tf.shape(inputs)
        count = tf.shape(seeds)[0]
        parts = tf.reshape(inputs, tf.concat([[count, shape[0] // count], shape[1:]], axis=0))
        parts.set_shape([None, None, *inputs.shape[1:]])

        def one(part_and_seed):
            part, seed = part_and_seed
            with replaced(generator, "next", lambda ordered=True: tf.bitcast(seed, tf.uint32)):
                return call(part, *args, **kwargs)

        return tf.ensure_shape(
            tf.reshape(tf.map_fn(one, (parts, seeds), fn_output_signature=inputs.dtype), shape), inputs.shape
        )

    return split


@contextlib.contextmanager
def replaced(owner, name, method):
    """Give one instance another method, for calls from this thread; Keras tracks nothing of it."""
    attributes, thread = vars(owner), threading.current_thread()
    plain, missing = getattr(owner, name), object()
    previous = attributes.get(name, missing)

    @functools.wraps(plain)
    def by_thread(*args, **kwargs):
        return (method if threading.current_thread() is thread else plain)(*args, **kwargs)

    attributes[name] = by_thread
    try:
        yield
    finally:
        if previous is missing:
            del attributes[name]
        else:
            attributes[name] = previous
