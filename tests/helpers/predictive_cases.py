"""Provides inputs and small models for the tests of draws."""

import keras
import numpy as np
import tensorflow as tf

from keras_vattn import GaussianLatent

N, T, D = 5, 3, 4
X = np.random.default_rng(1).normal(size=(N, T, D)).astype("float32")


def sequence_model(function):
    inputs = keras.Input((None, D))
    return keras.Model(inputs, function(inputs))


def latent_model(units=2, **options):
    return sequence_model(GaussianLatent(units, **options))


def self_attention(layer, **options):
    return lambda x: layer(**options)(x, x)


def predict(model, inputs=X):
    return model.predict(inputs, verbose=0)


class RecordRows(keras.layers.Layer):
    """Records the number of rows in every call, also in graphs."""

    def __init__(self):
        super().__init__()
        self.rows, self.supports_masking = [], True

    def call(self, x):
        def record(count):
            self.rows.append(int(count))
            return count

        rows = tf.numpy_function(record, [tf.shape(x)[0]], tf.int32)
        with tf.control_dependencies([rows]):
            return tf.identity(x)

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, dtype=x.dtype)
