import numpy as np
import pytest
import tensorflow as tf

from keras_vattn import WordDropout

IDS = np.random.default_rng(1).integers(0, 20, size=(200, 50))


def test_protected_ids_stay_and_the_rate_is_kept():
    """Of the unprotected words, a fraction of 0.25 is replaced, within 4 standard errors; seed 3."""
    layer = WordDropout(0.25, replacement_id=1, protected_ids=(0, 2), seed=3)
    words = layer(IDS, training=True).numpy()
    protected = (IDS == 0) | (IDS == 2)
    np.testing.assert_array_equal(words[protected], IDS[protected])
    changed = words != IDS
    assert (words[changed] == 1).all()
    free = ~protected & (IDS != 1)
    rate = changed[free].mean()
    assert abs(rate - 0.25) < 4 * np.sqrt(0.25 * 0.75 / free.sum())


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_the_extreme_rates(rate):
    words = WordDropout(rate, replacement_id=1, protected_ids=(0,))(IDS, training=True)
    np.testing.assert_array_equal(words, IDS if rate == 0.0 else np.where(IDS == 0, 0, 1))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_dtype_and_mask_stay(dtype):
    ids = tf.constant(IDS, dtype)
    ids._keras_mask = tf.constant(IDS > 0)
    words = WordDropout(0.5, replacement_id=1, protected_ids=(0,), seed=1)(ids, training=True)
    assert words.dtype.name == dtype
    np.testing.assert_array_equal(words._keras_mask, IDS > 0)
