"""`tf.custom_gradient` whose gradients are freed with the graph of the call."""

import functools
import weakref

import tensorflow as tf

from keras_vattn.support import keras_private

GRADIENTS = "_keras_vattn_gradients"


def custom_gradient(function):
    """`tf.custom_gradient` whose graphs and layers can be freed.

    TensorFlow's registry keeps the gradient of every call in a graph for the life of the process, including the tensors
    and layers that the gradient reads. Here the graph of the call keeps the gradient, and the registry only a weak
    reference to the graph.

    Args:
        function: As for `tf.custom_gradient`.
    """
    decorated = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*arguments):
        results = decorated(*arguments)
        if not tf.executing_eagerly():
            _move_to_graph(tf.nest.flatten(results)[0].op)
        return results

    return call


def _move_to_graph(operation):
    entry = keras_private.take_gradient(operation)
    if entry is None:
        return
    (name, gradient), graph = entry, operation.graph
    reference = weakref.ref(graph)
    if not hasattr(graph, GRADIENTS):
        setattr(graph, GRADIENTS, {})
    getattr(graph, GRADIENTS)[name] = gradient
    tf.RegisterGradient(name)(lambda *arguments: getattr(reference(), GRADIENTS)[name](*arguments))
    weakref.finalize(graph, keras_private.forget_gradient, name)


def is_recorded():
    """Return whether a gradient tape records operations here. It does not in the forward pass of a custom gradient."""
    x = tf.zeros(())
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.identity(x)
    return tape.gradient(y, x) is not None
