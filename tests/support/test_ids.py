import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_vattn import NegativeBound, SequenceCrossentropy, TokenLogLikelihood, WordDropout

IDS = np.array([[3, 301, 2049, 4001]])
VOCABULARY = 4002


def ramp(shape, dtype=None):
    """Initialize all words with different logits."""
    return np.broadcast_to(np.arange(VOCABULARY, dtype="float32") / 100.0, shape)


def words():
    return WordDropout(0.25, 1, (0,))


def log_likelihood():
    layer = TokenLogLikelihood(VOCABULARY, kernel_initializer="zeros", bias_initializer=ramp)
    layer.build((1, 4, 1, 2))
    return lambda ids: layer(ops.ones((1, 4, 1, 2)), ids)


def bound():
    loss = NegativeBound(ignore_class=301)
    return lambda ids: loss(ids, np.array([[-1.0, -2.0, -3.0, -4.0]]))


def crossentropy():
    loss = SequenceCrossentropy()
    return lambda ids: loss(ids, ramp((1, 4, VOCABULARY)))


@pytest.mark.parametrize("make", [words, log_likelihood, bound, crossentropy])
def test_ids_that_arrive_as_floats(make):
    """Float ids, the `keras.Input` default, give the same words in half precision. In eager mode, fractions raise."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    function, floats = make(), tf.constant(IDS, tf.float32)
    expected = ops.cast(function(IDS), "float32")
    np.testing.assert_array_equal(ops.cast(function(floats), "float32"), expected)
    np.testing.assert_allclose(tf.function(lambda ids: function(ids))(floats), expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"must contain integers. Received: \w+ with the value 3\.5"):
        function(floats + 0.5)


def test_ids_of_an_input_without_a_dtype():
    keras.config.set_dtype_policy("mixed_bfloat16")
    words = keras.Input((4,))
    model = keras.Model(words, WordDropout(0.25, 1, (0,))(words))
    np.testing.assert_array_equal(model.predict(IDS, verbose=0), IDS)
