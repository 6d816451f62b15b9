import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from keras_vattn import Alignment, DenseKeys, Softmax

LOGITS = np.random.default_rng(1).normal(size=(2, 3, 5), scale=3.0).astype("float32")
MASK = np.array([[True, True, False, True, False], [False] * 5])[:, None]  # (B, 1, S)


def test_without_a_mask():
    keys = DenseKeys()
    np.testing.assert_allclose(keys.softmax(LOGITS), softmax(LOGITS, -1), rtol=1e-5)
    np.testing.assert_allclose(keys.log_softmax(LOGITS), log_softmax(LOGITS, -1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(keys.sum(LOGITS), LOGITS.sum(-1), rtol=1e-5)
    assert keys.any_valid() is None


def test_with_a_mask():
    keys = DenseKeys(tf.constant(MASK))
    valid = [0, 1, 3]
    weights, log_weights = keys.softmax(LOGITS).numpy(), keys.log_softmax(LOGITS).numpy()
    np.testing.assert_allclose(weights[0][:, valid], softmax(LOGITS[0][:, valid], -1), rtol=1e-5)
    np.testing.assert_allclose(log_weights[0][:, valid], log_softmax(LOGITS[0][:, valid], -1), rtol=1e-5, atol=1e-6)
    masked = np.broadcast_to(~MASK, weights.shape)
    assert (weights[masked] == 0.0).all()
    assert (log_weights[masked] == 0.0).all()
    np.testing.assert_allclose(keys.sum(LOGITS)[0], LOGITS[0][:, valid].sum(-1), rtol=1e-5)
    assert (keys.sum(LOGITS)[1].numpy() == 0.0).all()
    assert keys.any_valid().numpy().tolist() == [[True], [False]]


@settings(max_examples=30)
@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=5, max_size=5),
    st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_any_mask_and_any_logits(logits, mask):
    logits, keys = tf.constant([[logits]], tf.float32), DenseKeys(tf.constant([[mask]]))
    with tf.GradientTape() as tape:
        tape.watch(logits)
        weights, log_weights = keys.softmax(logits), keys.log_softmax(logits)
        value = tf.reduce_sum(weights**2) + tf.reduce_sum(weights * log_weights)
    gradient = tape.gradient(value, logits).numpy()[0, 0]
    assert np.isfinite(gradient).all()
    assert np.isfinite(log_weights).all()
    assert (gradient[~np.array(mask)] == 0.0).all()
    assert (weights.numpy()[0, 0][~np.array(mask)] == 0.0).all()
    assert float(tf.reduce_sum(weights)) == pytest.approx(float(any(mask)), abs=1e-5)


def test_softmax_is_a_point_mass():
    keys = DenseKeys(tf.constant(MASK))
    np.testing.assert_array_equal(Softmax().posterior(LOGITS, keys).mean(), keys.softmax(LOGITS))
    with pytest.raises(ValueError, match="`posterior`, which Alignment does not define"):
        Alignment().posterior(LOGITS, keys)
