"""Provides comparisons, and the values and gradients of a call, for the checks of the battery."""

import numpy as np
import tensorflow as tf
from battery_table import takes_training
from keras import ops, tree


def assert_close(first, second, **tolerance):
    tree.assert_same_structure(first, second)
    for one, two in zip(tree.flatten(first), tree.flatten(second)):
        np.testing.assert_allclose(ops.cast(one, "float32"), ops.cast(two, "float32"), **tolerance)


def assert_equal(first, second):
    assert_close(first, second, rtol=0, atol=0)


def differ(case, first, second):
    return any(not np.array_equal(a, b) for a, b in zip(case.floats(first), case.floats(second), strict=True))


def all_finite(tensors):
    return all(np.isfinite(ops.cast(ops.convert_to_tensor(x), "float32")).all() for x in tree.flatten(tensors))


def objective(case, layer, result):
    """Return an objective of all outputs and the KL, averaged over the batch."""
    outputs = case.floats(result)
    return sum(ops.sum(ops.square(x)) / outputs[0].shape[0] for x in outputs) + sum(layer.losses)


def linear(case, layer, result):
    """Return an objective whose gradient stays in the range of half precision."""
    return sum(ops.mean(x) for x in case.floats(result)) + sum(layer.losses)


def value_and_gradients(case, layer, arrays, masks=None, training=True, objective=objective):
    """Return the result of a call, the objective, and its gradients with respect to float inputs and weights (zeros
    instead of `None`)."""
    watched = {name: x for name, x in arrays.items() if x.dtype.is_floating}
    with tf.GradientTape() as tape:
        tape.watch(list(watched.values()))
        result = layer(**arrays, **(masks or {}), **({"training": training} if training is not None else {}))
        value = objective(case, layer, result)
    sources = {**watched, **{w.path: w.value for w in layer.trainable_weights}}
    gradients = tape.gradient(value, sources, unconnected_gradients="zero")
    return result, value, {name: tf.convert_to_tensor(x) for name, x in gradients.items()}


def training_argument(case, training):
    """Return the argument `training` for layers that accept it; scores and contexts do not."""
    return {"training": training} if takes_training(case) else {}
