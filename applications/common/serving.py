"""Traces functions of a model and exports them as a SavedModel."""

import inspect
import math

import keras
import tensorflow as tf

import keras_vattn


def in_graph(*signature):
    """Return a decorator that traces a function once, for tensors that match this signature.

    AutoGraph is off, because it doubles the time of the first call. Python control flow must not depend on tensors.
    """
    return tf.function(input_signature=signature, autograph=False)


def with_names(function, *names):
    """Rename the arguments of a function, and return it. TensorFlow names signature inputs after them."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return function


class Untracked:
    """Wraps an object that a `tf.Module` stores but must not write to the SavedModel, such as a model."""

    def __init__(self, value):
        self.value = value

    def __call__(self, *arguments, **named):
        return self.value(*arguments, **named)


def mean_of_draws(model, log_probabilities, num_draws):
    """Return a function (batch_index, *arguments) that computes the log of a mean probability.
    It is log(mean(exp(`log_probabilities(*arguments)`))), with the mean over `num_draws` samples of the stochastic
    layers. Sample i has the seed (`batch_index`, i)."""

    @tf.function(reduce_retracing=True, autograph=False)
    def drawn(seed, *arguments):
        with keras_vattn.posterior_draws(model, seed=seed):
            return log_probabilities(*arguments)

    def mean(number, *arguments):
        draws = [drawn(tf.constant([number, draw]), *arguments) for draw in range(num_draws)]
        return tf.reduce_logsumexp(draws, axis=0) - math.log(num_draws)

    return mean


def noise_of(model, drops, draws=None):
    """Return a `keras_vattn.Sampler` for a model, or `None` if there is nothing to sample.

    If `draws` is true, the sampler samples the attention. Otherwise, it samples the dropout if the model has dropout
    (`drops`). By default, `draws` is true for models with stochastic layers.
    """
    draws = bool(keras_vattn.stochastic_layers(model)) if draws is None else draws
    return keras_vattn.Sampler(model, not draws, draws) if draws or drops else None


def model_endpoints(run, options=None):
    """Return a `tf.Module` and the names of its functions: only `predict`, which calls the model."""
    model, module = run.models.training, tf.Module()
    module.weights = [variable.value for variable in model.variables]

    def predict(*batch):
        return model(keras.tree.pack_sequence_as(model.input, batch), training=False)

    signature = [tf.TensorSpec(inputs.shape, inputs.dtype) for inputs in model.inputs]
    module.predict = in_graph(*signature)(with_names(predict, *(inputs.name for inputs in model.inputs)))
    return module, ("predict",)


def save_module(module, names, path):
    """Write a SavedModel whose endpoints are the functions `names`. The first is the default.
    Return the sorted names of all endpoints, including `serving_default`."""
    functions = {name: getattr(module, name) for name in names}
    signatures = {"serving_default": functions[names[0]], **functions}
    try:
        tf.saved_model.save(module, str(path), signatures=signatures)
    except tf.errors.OpError as error:
        raise OSError(f"{path} cannot be written: {error.message}") from error
    return sorted(signatures)
