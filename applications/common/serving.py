"""Exported modules: functions traced once, and their folder."""

import tensorflow as tf

import keras_vattn


def in_graph(*signature):
    """Return the decorator of a function of tensors that is traced for this signature alone.

    No Python loop or branch in it may depend on a tensor: AutoGraph would double the time of the first call.
    """
    return tf.function(input_signature=signature, autograph=False)


class Untracked:
    """Keeps an object out of the SavedModel, which needs no more of Keras than the variables."""

    def __init__(self, value):
        self.value = value


def noise_of(model, drops):
    """Return the `ModelNoise` of a model, `None` where nothing is drawn.

    A model whose attention is deterministic draws its dropout, if it has one (`drops`).
    """
    draws = bool(keras_vattn.stochastic_layers(model))
    return keras_vattn.ModelNoise(model, not draws) if draws or drops else None


def drawn(noise, num_draws, seed, predict):
    """Return the float32 results of `predict()` under the draws of a `ModelNoise`, stacked along a first axis."""
    seed = keras_vattn.random.as_seed(seed)

    def draw(number):
        with noise.drawn_from(keras_vattn.random.fold_in(seed, number)):
            return predict()

    with tf.control_dependencies([tf.debugging.assert_positive(num_draws, "num_samples must be positive")]):
        numbers = tf.range(num_draws)
    return tf.map_fn(draw, numbers, fn_output_signature=tf.float32, parallel_iterations=1)


def entropy(probabilities):
    """Return the entropy (nats) along the last axis."""
    return -tf.reduce_sum(tf.math.xlogy(probabilities, probabilities), axis=-1)


def save_module(module, names, path):
    """Write a SavedModel whose endpoints are the functions of these names, the first one the default."""
    # TensorFlow traces every function anew while it saves; a concrete one, from before, would be traced for nothing.
    signatures = {name: getattr(module, name) for name in names}
    try:
        tf.saved_model.save(module, str(path), signatures={"serving_default": signatures[names[0]], **signatures})
    except tf.errors.OpError as error:
        raise OSError(f"{path} cannot be written: {error.message}") from error
