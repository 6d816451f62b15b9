import numpy as np
import pytest
import tensorflow as tf

from keras_vattn import NegativeBound

BATCH = TIME = 4
LENGTHS = (4, 2, 1, 0)
GENERATOR = np.random.default_rng(3)
BOUND = GENERATOR.normal(size=(BATCH, TIME), loc=-3.0).astype("float32")
LABELS = GENERATOR.integers(1, 9, size=(BATCH, TIME))
MASK = np.arange(TIME) < np.array(LENGTHS)[:, None]


def masked(bound, mask):
    bound = tf.constant(bound)
    bound._keras_mask = tf.constant(mask)
    return bound


def test_value():
    expected = -BOUND.sum(axis=1)
    np.testing.assert_allclose(NegativeBound()(LABELS, BOUND), expected.mean(), rtol=1e-6)
    np.testing.assert_allclose(NegativeBound(reduction="sum")(LABELS, BOUND), expected.sum(), rtol=1e-6)
    np.testing.assert_allclose(NegativeBound(reduction=None)(LABELS, BOUND), expected, rtol=1e-6)


def test_mask_where_batch_and_time_have_the_same_size():
    """If B == T, multiplying (B,) losses by a (B, T) mask by mistake would not raise an error."""
    expected = -(BOUND * MASK).sum(axis=1)
    np.testing.assert_allclose(NegativeBound()(LABELS, masked(BOUND, MASK)), expected.mean(), rtol=1e-6)
    per_sequence = NegativeBound(reduction=None)(LABELS, masked(BOUND, MASK))
    np.testing.assert_allclose(per_sequence, expected, rtol=1e-6)
    assert float(per_sequence[3]) == 0.0


def test_ignore_class():
    padded = np.where(MASK, LABELS, 0)
    expected = -(BOUND * MASK).sum(axis=1).mean()
    np.testing.assert_allclose(NegativeBound(ignore_class=0)(padded, BOUND), expected, rtol=1e-6)
    first = np.ones_like(MASK)
    first[:, 0] = False
    both = -(BOUND * MASK * first).sum(axis=1).mean()
    np.testing.assert_allclose(NegativeBound(ignore_class=0)(padded, masked(BOUND, first)), both, rtol=1e-6)


def test_masked_steps_have_no_gradient():
    variable = tf.Variable(np.where(MASK, BOUND, -np.inf))
    with tf.GradientTape() as tape:
        loss = NegativeBound(ignore_class=0)(np.where(MASK, LABELS, 0), tf.identity(variable))
    assert np.isfinite(loss)
    np.testing.assert_allclose(tape.gradient(loss, variable), np.where(MASK, -1.0 / BATCH, 0.0))


def test_sample_weights():
    per_sequence, per_step = np.array([0.0, 1.0, 2.0, 3.0]), GENERATOR.random((BATCH, TIME))
    loss, bound = NegativeBound(), masked(BOUND, MASK)
    costs = -BOUND * MASK
    np.testing.assert_allclose(loss(LABELS, bound, per_sequence), (costs.sum(1) * per_sequence).mean(), rtol=1e-6)
    np.testing.assert_allclose(loss(LABELS, bound, per_step), (costs * per_step).sum(1).mean(), rtol=1e-6)
    np.testing.assert_allclose(loss(LABELS, bound, 2.0), 2 * costs.sum(1).mean(), rtol=1e-6)


def test_labels_are_not_read_without_ignore_class():
    np.testing.assert_allclose(NegativeBound()(np.zeros(BATCH), BOUND), -BOUND.sum(axis=1).mean(), rtol=1e-6)


@pytest.mark.parametrize("labels", [LABELS[:, 0], LABELS, np.ones((BATCH, 9), "float32")])
def test_one_bound_per_example(labels):
    """A bound (B,) has no time axis, so it is not summed. Labels may be anything, including votes."""
    bound, weight = BOUND[:, 0], np.array([0.0, 1.0, 2.0, 3.0])
    np.testing.assert_allclose(NegativeBound()(labels, bound), -bound.mean(), rtol=1e-6)
    np.testing.assert_allclose(NegativeBound(reduction=None)(labels, bound), -bound, rtol=1e-6)
    np.testing.assert_allclose(NegativeBound()(labels, bound, weight), -(bound * weight).mean(), rtol=1e-6)
    valid = np.array([True, False, True, True])
    np.testing.assert_allclose(NegativeBound()(labels, masked(bound, valid)), -(bound * valid).mean(), rtol=1e-6)


def test_ignore_class_with_one_bound_per_example():
    labels, bound = np.array([0, 4, 0, 2]), BOUND[:, 0]
    value = NegativeBound(ignore_class=0)(labels, bound)
    np.testing.assert_allclose(value, -(bound * (labels > 0)).mean(), rtol=1e-6)
    with pytest.raises(ValueError, match=r"\(batch,\).*Received: y_true.shape=\(4, 4\)"):
        NegativeBound(ignore_class=0)(LABELS, bound)
    with pytest.raises(ValueError, match=r"Received: sample_weight\.shape=\(4, 1\)"):
        NegativeBound()(labels, bound, np.ones((4, 1)))


def test_votes_have_no_class_to_ignore():
    votes = np.ones((4, 7), "float32")
    np.testing.assert_allclose(NegativeBound()(votes, BOUND[:, 0]), -BOUND[:, 0].mean(), rtol=1e-6)
    with pytest.raises(ValueError, match=r"not to weights.*y_true\.shape=\(4, 7\), ignore_class=0"):
        NegativeBound(ignore_class=0)(votes, BOUND[:, 0])


def test_errors():
    with pytest.raises(ValueError, match=r"Received: y_pred.shape=\(4, 4, 1\)"):
        NegativeBound()(LABELS, BOUND[..., None])
    with pytest.raises(ValueError, match=r"Received: y_true.shape=\(4,\)"):
        NegativeBound(ignore_class=0)(LABELS[:, 0], BOUND)
    with pytest.raises(ValueError, match=r"Received: sample_weight\.shape=\(4, 3\)"):
        NegativeBound()(LABELS, BOUND, np.ones((4, 3)))
    with pytest.raises(ValueError, match=r"Received: mask.shape=\(4, 3\)"):
        NegativeBound()(LABELS, masked(BOUND, MASK[:, :3]))
