"""Exported modules: functions traced once, and their folder."""

import inspect
import math

import keras
import tensorflow as tf

import keras_vattn


def in_graph(*signature):
    """Return the decorator of a function of tensors that is traced for this signature alone.

    No Python loop or branch in it may depend on a tensor: AutoGraph would double the time of the first call.
    """
    return tf.function(input_signature=signature, autograph=False)


def with_names(function, *names):
    """Return a function whose arguments have these names for TensorFlow, which calls a signature's inputs by them."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return function


class Untracked:
    """Keeps an object or a function out of the SavedModel, which needs no more of Keras than the variables."""

    def __init__(self, value):
        self.value = value

    def __call__(self, *arguments, **named):
        return self.value(*arguments, **named)


def mean_of_draws(model, log_probabilities, num_draws):
    """Return the function of the number of a batch and of the arguments of `log_probabilities` that is the logarithm of
    the mean probability over draws of a model's layers, which every batch has of its own."""

    @tf.function(reduce_retracing=True, autograph=False)
    def drawn(seed, *arguments):
        with keras_vattn.posterior_draws(model, seed=seed):
            return log_probabilities(*arguments)

    def mean(number, *arguments):
        draws = [drawn(tf.constant([number, draw]), *arguments) for draw in range(num_draws)]
        return tf.reduce_logsumexp(draws, axis=0) - math.log(num_draws)

    return mean


def noise_of(model, drops, draws=None):
    """Return the `keras_vattn.Sampler` of a model, `None` where nothing is drawn.

    A model whose attention is not drawn draws its dropout, if it has one (`drops`). Attention is drawn if `draws`; by
    default if the model has stochastic layers.
    """
    draws = bool(keras_vattn.stochastic_layers(model)) if draws is None else draws
    return keras_vattn.Sampler(model, not draws, draws) if draws or drops else None


def model_endpoints(run, options=None):
    """Return a module whose `predict` is the model on a batch of its inputs, and the name of this function."""
    model, module = run.models.training, tf.Module()
    module.weights = [variable.value for variable in model.variables]

    def predict(*batch):
        return model(keras.tree.pack_sequence_as(model.input, batch), training=False)

    signature = [tf.TensorSpec(inputs.shape, inputs.dtype) for inputs in model.inputs]
    module.predict = in_graph(*signature)(with_names(predict, *(inputs.name for inputs in model.inputs)))
    return module, ("predict",)


def save_module(module, names, path):
    """Write a SavedModel whose endpoints are the functions of these names, the first one the default; return the names
    of all endpoints, sorted, with `serving_default`."""
    # TensorFlow traces every function anew while it saves; a concrete one, from before, would be traced for nothing.
    functions = {name: getattr(module, name) for name in names}
    signatures = {"serving_default": functions[names[0]], **functions}
    try:
        tf.saved_model.save(module, str(path), signatures=signatures)
    except tf.errors.OpError as error:
        raise OSError(f"{path} cannot be written: {error.message}") from error
    return sorted(signatures)
