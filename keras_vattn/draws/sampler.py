"""Sample the outputs of a model from one seed, eagerly or in a graph."""

import contextlib
import functools
import random as python_random
import threading
import warnings

import numpy as np
import tensorflow as tf
from keras import layers, tree

from keras_vattn import random
from keras_vattn.draws.batches import input_batches, repeated
from keras_vattn.draws.dropout import RATE_NAMES, follow_requests, has_dropout, has_unknown_rate
from keras_vattn.draws.request import Draws, requested
from keras_vattn.draws.seeded_scope import SeededScope
from keras_vattn.draws.shared_prefix import SharedPrefix
from keras_vattn.draws.stochastic_layers import drawing_layers, is_stochastic
from keras_vattn.support import keras_private
from keras_vattn.support.validation import positive_integer


class Sampler:
    """Samples outputs of a model repeatedly, for instance in a server, without tracing the model for every call.

    A call takes the arguments of `keras_vattn.posterior_predictive` except `model`, `dropout` and `posterior`, and
    returns the same arrays. The first call traces the model. A new dtype or shape of the inputs retraces the model. A
    new number of examples does not. Every call reads the current values of the model's variables, for instance the
    weights. If you change an attribute that is not a variable, for instance a dropout rate, create a new sampler.
    Threads may share a sampler.

    Two methods help you write your own endpoint. `drawn_from(seed)` is a context manager in which the model samples in
    the current thread. `draws(predict, inputs, num_samples, seed)` computes several samples in a graph.

    `dropout=True` permanently replaces the `call` of each Keras layer that has dropout. The new `call` applies dropout
    in threads that request dropout. In other threads, it behaves as before.

    Args:
        model: A built `keras.Model` or layer.
        dropout: Whether layers apply dropout, as in `posterior_predictive`. Defaults to `False`.
        posterior: Whether stochastic layers sample, instead of using their mean. Defaults to `True`.

    Call arguments:
        inputs, num_samples, seed, batch_size, max_rows: As in `posterior_predictive`.

    Returns:
        NumPy arrays, as in `posterior_predictive`.

    Raises:
        ValueError: If the model is not built, has no random layer, or has a stochastic layer that does not read
            requests to sample. Calls raise the errors of `posterior_predictive`.

    Example:

    >>> inputs = keras.Input((3,))
    >>> model = keras.Model(inputs, keras_vattn.GaussianLatent(4)(inputs))
    >>> sampler, x = keras_vattn.Sampler(model), keras.ops.ones((2, 3))
    >>> sampler(x, 20, seed=1).shape, sampler(keras.ops.ones((5, 3)), 10, seed=2).shape
    ((20, 2, 4), (10, 5, 4))
    >>> def draw(seed):
    ...     with sampler.drawn_from(seed):
    ...         return model(x)
    >>> bool(keras.ops.all(draw(1) == draw(1))), bool(keras.ops.any(draw(1) == draw(2)))
    (True, False)
    """

    def __init__(self, model, dropout=False, posterior=True):
        if not model.built:
            raise ValueError(f"Sampling needs a built model: call the model once. Received: {model.name}.built=False")
        self.model = model
        self.layers = keras_private.flatten_layers(model)
        all_dropouts = [layer for layer in self.layers if has_dropout(layer)]
        self.dropouts = all_dropouts if dropout else []
        self.is_stochastic = posterior and bool(drawing_layers(model))
        if not self.is_stochastic and not self.dropouts:
            raise ValueError(
                "Sampling needs a model with a stochastic layer and posterior=True, or a model with dropout and "
                "dropout=True. A dropout layer must have a seed generator and a rate above 0. "
                f"Received: model={model}, dropout={dropout}, posterior={posterior}"
            )
        unknown_layers = [layer for layer in self.layers if dropout and has_unknown_rate(layer)]
        if unknown_layers:
            warnings.warn(
                "dropout=True has no effect on a layer with a seed generator but none of the attributes "
                f"{', '.join(RATE_NAMES)}: give its rate one of these names. "
                f"Received: {', '.join(f'{type(layer).__name__}(name={layer.name!r})' for layer in unknown_layers)}",
                stacklevel=3,
            )
        # Without this `False`, a layer with dropout would run its BatchNormalization in training mode.
        normalizations = [x for x in self.layers if self.dropouts and isinstance(x, layers.BatchNormalization)]
        # `None` cancels the dropout request of an outer `drawn_from`.
        self._training = dict.fromkeys(all_dropouts, True if dropout else None) | dict.fromkeys(normalizations, False)
        # `Draws()` needs no seed: `SeededScope` replaces the states of all seed generators.
        self._draws = dict.fromkeys(filter(is_stochastic, self.layers), Draws() if posterior else None)
        for layer in [*self.dropouts, *normalizations]:
            follow_requests(layer)
        self._functions, self._trace_lock = {}, threading.Lock()

    @property
    def rows_are_independent(self):
        """Whether each example has its own noise, so that one call on a repeated batch computes independent draws."""
        shapes = [getattr(layer, "noise_shape", None) for layer in self.dropouts]
        shares_noise = any(shape and shape[0] == 1 for shape in shapes)
        return not shares_noise and not any(getattr(layer, "mixes_examples", False) for layer in self.layers)

    @contextlib.contextmanager
    def drawn_from(self, seed):
        """Return a context manager. Inside it, the model samples from `seed` in this thread, but changes no variables.

        The seed is an integer or an int32 tensor of shape () or (2,). In the `with` block, do not call `predict` or
        `evaluate`: Keras would cache functions that sample, and call them again after the block. Do not use `await` in
        the block: values that other coroutines of the thread assign to Keras variables meanwhile would be lost.
        """
        with requested(self._draws, self._training), SeededScope(random.as_seed(seed)):
            yield

    def draws(self, predict, inputs, num_samples, seed, max_rows=256):
        """Return samples of `predict(inputs)`, float32 (num_samples, B, ...). A `tf.function` may call this method.

        If each example has its own noise, one call of the model computes several draws: the inputs are repeated along
        the first axis, up to `max_rows` rows.

        Args:
            predict: Function of the inputs that calls the model and returns one tensor (B, ...).
            inputs: Tensor (B, ...), or a structure of such tensors.
            num_samples: Number of draws, an integer or an int32 tensor.
            seed: Integer, or an int32 tensor of shape () or (2,).
            max_rows: Maximum number of rows (examples times draws) in one call of the model. A call computes at least
                one draw of the whole batch. Defaults to 256.
        """
        seed = random.as_seed(seed)
        with tf.control_dependencies([tf.debugging.assert_positive(num_samples, "num_samples must be positive")]):
            num_samples = tf.identity(num_samples)
        if self.rows_are_independent:
            rows = tf.reduce_max([1, *(tf.shape(x)[0] for x in tree.flatten(inputs))])
            num_calls = -(-num_samples // tf.clip_by_value(max_rows // rows, 1, num_samples))
            draws_per_call = -(-num_samples // num_calls)
        else:
            num_calls, draws_per_call = num_samples, 1

        def draw(number):
            with self.drawn_from(random.fold_in(seed, number)):
                return _split_draws(tf.cast(predict(repeated(inputs, draws_per_call)), tf.float32), draws_per_call)

        all_draws = tf.map_fn(draw, tf.range(num_calls), fn_output_signature=tf.float32, parallel_iterations=1)
        return tf.reshape(all_draws, tf.concat([[-1], tf.shape(all_draws)[2:]], axis=0))[:num_samples]

    def __call__(self, inputs, num_samples, seed=None, batch_size=32, max_rows=256):
        for name, value in (("num_samples", num_samples), ("batch_size", batch_size), ("max_rows", max_rows)):
            positive_integer(name, value)
        if not tf.executing_eagerly():
            raise ValueError("A `Sampler` must be called eagerly; use `draws` in a `tf.function`. Received: graph mode")
        seed, results = random.as_seed(python_random.getrandbits(32) if seed is None else seed), []
        for index, (batch, spec) in enumerate(input_batches(self.model, inputs, batch_size)):
            draws_per_call = _draws_per_call(batch, num_samples, max_rows) if self.rows_are_independent else 1
            prefix, run_remainder = self._traced_functions(batch, spec, draws_per_call > 1)
            draw, seed_of_batch = functools.partial(run_remainder, batch, prefix(batch)), random.fold_in(seed, index)
            starts = range(0, num_samples, draws_per_call)
            draws = [draw(random.fold_in(seed_of_batch, i), min(draws_per_call, num_samples - i)) for i in starts]
            results.append(tree.map_structure(lambda *x: np.concatenate([output.numpy() for output in x]), *draws))
        if not results:
            raise ValueError("`inputs` must contain at least one batch. Received: an empty dataset")
        return tree.map_structure(_join, *results)

    def _traced_functions(self, batch, spec, repeats):
        """Return two traced functions: `prefix(batch)` and `run_remainder(batch, result of prefix, seed, count)`."""
        with self._trace_lock:
            key = repr(spec), repeats
            if key not in self._functions:
                self._functions[key] = self._trace(batch, spec, repeats)
            return self._functions[key]

    def _trace(self, batch, spec, repeats):
        structure = []

        def call(inputs, seed):
            with self.drawn_from(seed):
                outputs = self.model(inputs, training=False)
            structure[:] = [outputs]
            return [tf.convert_to_tensor(x) for x in tree.flatten(outputs)]

        prefix = SharedPrefix(call, spec, batch, repeats)

        def draw(inputs, shared, seed, count):
            outputs = tree.pack_sequence_as(*structure, prefix.run_remainder(inputs, shared, seed, count))
            return tree.map_structure(lambda x: _split_draws(x, count), outputs)

        signature = [spec, prefix.specs, tf.TensorSpec((2,), tf.int32), tf.TensorSpec((), tf.int32)]
        # Trace `draw` now, while the caller holds `_trace_lock`.
        run_remainder = tf.function(draw, input_signature=signature, autograph=False)
        run_remainder.get_concrete_function()
        return prefix.run_prefix, run_remainder


def _split_draws(x, count):
    """Reshape (count * B, ...) to (count, B, ...)."""
    if not len(x.shape):
        raise ValueError("Every output needs a batch axis. Received: an output of shape ()")
    return tf.reshape(x, tf.concat([[count, tf.shape(x)[0] // count], tf.shape(x)[1:]], axis=0))


def _draws_per_call(batch, num_samples, max_rows):
    leaves = tree.flatten(batch)
    if not all(isinstance(x, (np.ndarray, tf.Tensor)) for x in leaves):
        return 1
    rows = [x.shape[0] if x.shape else 0 for x in leaves]
    draws_per_call = min(num_samples, max_rows // max(1, *rows))
    if draws_per_call > 1 and min(rows) != max(rows):
        raise ValueError(
            "To compute several draws at a time, all inputs must have the same number of rows (first axis). If they "
            f"do not, as for a graph, set max_rows=1. Received: {[tuple(x.shape) for x in leaves]}"
        )
    return max(1, draws_per_call)


def _join(*batches):
    shapes = [(x.shape[0], *x.shape[2:]) for x in batches]
    if len(set(shapes)) > 1:
        raise ValueError(
            "Except for the batch axis, all batches must have outputs of the same shape: pad the inputs to one length. "
            f"Received: {sorted(set(shapes))}"
        )
    return np.concatenate(batches, axis=1)
