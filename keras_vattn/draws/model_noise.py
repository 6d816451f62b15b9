"""All the noise of a model as a function of one seed."""

import contextlib
import functools
import inspect
import itertools
import numbers
import warnings

import keras
import tensorflow as tf
from keras import layers, tree

from keras_vattn import random
from keras_vattn.draws.marks import TURN
from keras_vattn.draws.posterior_draws import posterior_draws
from keras_vattn.draws.stochastic_layers import drawing_layers
from keras_vattn.support import keras_private

RATES = ("rate", "dropout", "recurrent_dropout", "feature_dropout", "dropout_rate")


class ModelNoise:
    """The noise of a model as a function of a seed that may be a tensor, for an endpoint of your own that draws.

    `keras_vattn.posterior_predictive` is the loop around it. `drawn_from(seed)` is a context in which every call of the
    model draws, and changes none of its variables. It works in a `tf.function`; trace a function that threads share
    first, with `get_concrete_function`. `draws(predict, inputs, num_samples, seed)` makes several draws in a graph.

    Args:
        model: A built `keras.Model` or layer.
        dropout: Whether layers drop, as in `posterior_predictive`. Defaults to `False`.
        posterior: Whether stochastic layers draw. Defaults to `True`.

    Raises:
        ValueError: If nothing in the model would be random, or a layer cannot see that it is to draw.

    Example:

    >>> inputs = keras.Input((3,))
    >>> model = keras.Model(inputs, keras_vattn.GaussianLatent(4)(inputs))
    >>> noise, x = keras_vattn.ModelNoise(model), keras.ops.ones((2, 3))
    >>> def draw(seed):
    ...     with noise.drawn_from(seed):
    ...         return model(x)
    >>> bool(keras.ops.all(draw(1) == draw(1))), bool(keras.ops.any(draw(1) == draw(2)))
    (True, False)
    """

    def __init__(self, model, dropout=False, posterior=True):
        self.model = model
        self.layers = keras_private.flatten_layers(model)
        self.dropping = [layer for layer in self.layers if dropout and has_dropout(layer)]
        self.is_stochastic = posterior and bool(drawing_layers(model))
        if not self.is_stochastic and not self.dropping:
            raise ValueError(
                "Draws need a model with a stochastic layer, or with dropout and dropout=True. "
                f"Received: model={model}, dropout={dropout}, posterior={posterior}"
            )
        unknown = [layer for layer in self.layers if dropout and _may_drop(layer)]
        if unknown:
            warnings.warn(
                f"A layer with a seed generator and none of the attributes {', '.join(RATES)} does not drop under "
                "dropout=True: give its rate one of these names. "
                f"Received: {', '.join(f'{type(layer).__name__}(name={layer.name!r})' for layer in unknown)}",
                stacklevel=3,
            )

    @property
    def examples_are_apart(self):
        """Whether every example has noise of its own, so that a batch may be repeated to draw several times."""
        shapes = [getattr(layer, "noise_shape", None) for layer in self.dropping]
        shares = any(shape and shape[0] == 1 for shape in shapes)
        return not shares and not any(getattr(layer, "mixes_examples", False) for layer in self.layers)

    @contextlib.contextmanager
    def drawn_from(self, seed):
        """Make every call of the model in this thread draw from a seed, an integer or an int32 tensor of shape () or
        (2,), and change none of its variables. Another thread that enters it, of whatever model, waits."""
        with contextlib.ExitStack() as stack:
            # Two at once would each take the other's methods for the layers' own.
            stack.enter_context(TURN.taken({}))
            stack.enter_context(keras.StatelessScope(collect_losses=True, initialize_variables=False))
            if self.is_stochastic:
                # Without a seed of its own every layer asks its generator.
                stack.enter_context(posterior_draws(self.model))
            next_seed = seed_sequence(random.as_seed(seed))
            for layer in self.layers:
                for generator in keras_private.seed_generators(layer):
                    stack.enter_context(replaced(generator, "next", next_seed))
                if isinstance(layer, layers.BatchNormalization):
                    stack.enter_context(replaced(layer, "call", with_training(layer.call, False)))
            for layer in self.dropping:
                stack.enter_context(replaced(layer, *dropping_method(layer)))
            yield

    def draws(self, predict, inputs, num_samples, seed, max_rows=256):
        """Return draws of `predict(inputs)` in a graph, (num_samples, B, ...) float32.

        Several draws go through the model together, repeated on the first axis, as far as `max_rows` allows and the
        model's examples have noise of their own.

        Args:
            predict: Function of the inputs that calls the model and returns one tensor (B, ...).
            inputs: Tensor (B, ...), or a structure of them.
            num_samples: Number of draws, an integer or an int32 tensor.
            seed: Integer, or an int32 tensor of shape () or (2,).
            max_rows: The largest number of rows (examples times draws) at a time; at least one draw of the batch.
                Defaults to 256.
        """
        seed = random.as_seed(seed)
        with tf.control_dependencies([tf.debugging.assert_positive(num_samples, "num_samples must be positive")]):
            num_samples = tf.identity(num_samples)
        if self.examples_are_apart:
            rows = tf.reduce_max([1, *(tf.shape(x)[0] for x in tree.flatten(inputs))])
            num_calls = -(-num_samples // tf.clip_by_value(max_rows // rows, 1, num_samples))
            # Of calls of one size the last one has least to spare.
            together = -(-num_samples // num_calls)
        else:
            num_calls, together = num_samples, 1

        def draw(number):
            with self.drawn_from(random.fold_in(seed, number)):
                return by_draw(tf.cast(predict(repeated(inputs, together)), tf.float32), together)

        calls = tf.map_fn(draw, tf.range(num_calls), fn_output_signature=tf.float32, parallel_iterations=1)
        return tf.reshape(calls, tf.concat([[-1], tf.shape(calls)[2:]], axis=0))[:num_samples]


def repeated(inputs, count):
    """Return tensors (count * B, ...) of a structure of tensors (B, ...)."""
    return tree.map_structure(lambda x: tf.tile(x, [count, *[1] * (len(x.shape) - 1)]), inputs)


def by_draw(x, count):
    """Return (count, B, ...) of (count * B, ...)."""
    if not len(x.shape):
        raise ValueError("Every output needs a batch axis. Received: an output of shape ()")
    return tf.reshape(x, tf.concat([[count, tf.shape(x)[0] // count], tf.shape(x)[1:]], axis=0))


def has_dropout(layer):
    """Return whether the layer itself, the cell that it runs or a part of a recurrent decoder drops in training."""
    owners = [layer, getattr(layer, "cell", None)]
    # In parts of the queries an attention takes the place of the dropout inside of it.
    in_parts = getattr(layer, "query_chunk_size", None) is not None
    owners = [x for x in owners if isinstance(x, keras.Layer) and (keras_private.seed_generators(x) or in_parts)]
    if hasattr(layer, "draw_noise") and hasattr(layer, "parts"):
        owners += layer.parts()
    rates = [getattr(owner, name, None) for owner in owners for name in RATES]
    return any(isinstance(rate, numbers.Real) and rate > 0 for rate in rates)


def _may_drop(layer):
    """Return whether a layer may have a dropout whose rate has another name than `RATES`."""
    # Stochastic layers and recurrent decoders have a seed generator for their draws.
    has_known_attribute = any(hasattr(layer, name) for name in ("noise_seed", "draw_noise", *RATES))
    return bool(keras_private.seed_generators(layer)) and not has_known_attribute


def seed_sequence(seed):
    """Return a replacement of `SeedGenerator.next` that makes another seed of `seed` at every call."""
    count = itertools.count()

    def next_seed(ordered=True):
        return tf.bitcast(random.fold_in(seed, next(count)), tf.uint32)

    return next_seed


def dropping_method(layer):
    """Return the name of the layer's method that decides on dropout, and a method that drops."""
    if hasattr(layer, "draw_noise"):
        return "draw_noise", with_dropout_noise(layer.draw_noise)
    return "call", with_training(layer.call, True)


def with_training(call, training):
    """Return the call of a layer with a fixed `training`, if it takes one."""
    if "training" not in inspect.signature(call).parameters:
        return call

    @functools.wraps(call)
    def fixed(*args, **kwargs):
        return call(*args, **{**kwargs, "training": training})

    return fixed


def with_dropout_noise(draw_noise):
    """Return the `draw_noise` of an attention layer or decoder with the dropout of training, and nothing else of it."""

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


@contextlib.contextmanager
def replaced(owner, name, method):
    """Give one instance another method, for calls of who has the turn; Keras tracks nothing of it."""
    attributes, plain = vars(owner), getattr(owner, name)
    before = {name: attributes[name]} if name in attributes else {}

    @functools.wraps(plain)
    def in_turn(*args, **kwargs):
        return (method if TURN.is_mine() else plain)(*args, **kwargs)

    attributes[name] = in_turn
    try:
        yield
    finally:
        del attributes[name]
        attributes.update(before)
