"""Tests the export of a program that defines no endpoints."""

import types

import keras
import numpy as np
import tensorflow as tf

from applications.common.serving import model_endpoints


def test_a_model_of_two_inputs_is_exported(tmp_path):
    first, second = keras.Input((2,), name="first"), keras.Input((), dtype="int32", name="second")
    model = keras.Model(
        {"second": second, "first": first}, keras.ops.sum(first, axis=-1) * keras.ops.cast(second, "float32")
    )
    module, names = model_endpoints(types.SimpleNamespace(models=types.SimpleNamespace(training=model)))
    tf.saved_model.save(module, tmp_path)
    served = tf.saved_model.load(tmp_path)
    assert names == ("predict",)
    steps, factors = np.float32([[1, 2], [3, 4]]), np.int32([10, 100])
    np.testing.assert_array_equal(served.predict(first=steps, second=factors), [30, 700])
