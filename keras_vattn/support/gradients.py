"""`tf.custom_gradient` without its leak."""

import functools
import weakref

import tensorflow as tf

from keras_vattn.support import keras_private

GRADIENTS = "_keras_vattn_gradients"


def custom_gradient(function=None, owner=None):
    """`tf.custom_gradient`, whose graphs and layers can be freed.

    TensorFlow registers the gradient of every call in a graph for ever, and with it all that this reads: the weights of
    each model that a process has trained. Here the owner keeps the gradient, and the registry a weak reference. (A tape
    has the gradient itself.)

    Args:
        function: As for `tf.custom_gradient`.
        owner: The layer whose call this is, where the gradient asks it; `None` for the graph.
    """
    if function is None:
        return functools.partial(custom_gradient, owner=owner)
    decorated = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*arguments):
        results = decorated(*arguments)
        if not tf.executing_eagerly():
            operation = tf.nest.flatten(results)[0].op
            _let_go(operation, operation.graph if owner is None else owner)
        return results

    return call


def _let_go(operation, owner):
    entry = keras_private.take_gradient(operation)
    if entry is None:
        return
    (name, gradient), reference = entry, weakref.ref(owner)
    if not hasattr(owner, GRADIENTS):
        # A layer of Keras looks into what is assigned to it.
        object.__setattr__(owner, GRADIENTS, {})
    getattr(owner, GRADIENTS)[name] = gradient
    tf.RegisterGradient(name)(lambda *arguments: getattr(reference(), GRADIENTS)[name](*arguments))
    weakref.finalize(owner, keras_private.forget_gradient, name)


def is_recorded():
    """Return whether a gradient tape records operations here: not in the forward pass of a custom gradient."""
    x = tf.zeros(())
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.identity(x)
    return tape.gradient(y, x) is not None
