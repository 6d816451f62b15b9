"""Define a variant of `tf.custom_gradient` that frees a gradient function together with its graph."""

import functools
import weakref

import tensorflow as tf

from keras_vattn.support import keras_private

GRADIENTS = "_keras_vattn_gradients"


def custom_gradient(function):
    """Decorator like `tf.custom_gradient` that does not keep graphs and layers in memory.

    In graph mode, `tf.custom_gradient` stores every gradient function, and all tensors and layers that the function
    reads, until the process ends. This decorator stores the gradient function in the graph instead.

    Args:
        function: Function of tensors that returns its result and its gradient function.
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
    """Return whether gradient tapes can record now. They cannot in the forward pass of `tf.recompute_grad`."""
    x = tf.zeros(())
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.identity(x)
    return tape.gradient(y, x) is not None
