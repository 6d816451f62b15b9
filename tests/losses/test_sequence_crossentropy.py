import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax, softmax

from keras_vattn.losses import SequenceCrossentropy, sequence_log_likelihood

BATCH, TIME, VOCABULARY = 4, 4, 7
LENGTHS = (4, 2, 1, 0)


class WithMask(keras.layers.Layer):
    """Passes the mask of the tokens on to the logits."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs):
        return inputs

    def compute_mask(self, inputs, previous_mask=None):
        return previous_mask


@pytest.fixture
def data():
    generator = np.random.default_rng(3)
    logits = generator.normal(size=(BATCH, TIME, VOCABULARY), scale=3.0).astype("float32")
    labels = generator.integers(1, VOCABULARY, size=(BATCH, TIME))
    mask = np.arange(TIME) < np.array(LENGTHS)[:, None]
    return labels, logits, mask


def masked(logits, mask):
    logits = tf.constant(logits)
    logits._keras_mask = tf.constant(mask)
    return logits


def steps(labels, logits):
    """Return -log p of each step, in float64 with NumPy."""
    log_probabilities = log_softmax(logits.astype("float64"), axis=-1)
    return -np.take_along_axis(log_probabilities, labels[..., None], axis=-1)[..., 0]


def test_value(data):
    labels, logits, _ = data
    expected = steps(labels, logits).sum(axis=1)
    np.testing.assert_allclose(SequenceCrossentropy()(labels, logits), expected.mean(), rtol=1e-6)
    np.testing.assert_allclose(SequenceCrossentropy(reduction="sum")(labels, logits), expected.sum(), rtol=1e-6)
    np.testing.assert_allclose(SequenceCrossentropy(reduction=None)(labels, logits), expected, rtol=1e-6)


def test_mask_where_batch_and_time_have_the_same_size(data):
    """If B == T, multiplying (B,) losses by a (B, T) mask by mistake would not raise an error."""
    labels, logits, mask = data
    expected = (steps(labels, logits) * mask).sum(axis=1).mean()
    np.testing.assert_allclose(SequenceCrossentropy()(labels, masked(logits, mask)), expected, rtol=1e-6)
    # The last example has zero loss, but counts in the mean over the batch.
    per_row = SequenceCrossentropy(reduction=None)(labels, masked(logits, mask))
    assert float(per_row[3]) == 0.0
    assert float(SequenceCrossentropy()(labels, masked(logits, np.zeros_like(mask)))) == 0.0


def test_masked_steps_have_no_gradient_and_any_label(data):
    labels, logits, mask = data
    labels = np.where(mask, labels, -1)
    variable = tf.Variable(logits)
    with tf.GradientTape() as tape:
        prediction = tf.identity(variable)
        prediction._keras_mask = tf.constant(mask)
        loss = SequenceCrossentropy()(labels, prediction)
    gradient = tape.gradient(loss, variable).numpy()
    assert (gradient[~mask] == 0.0).all()
    one_hot = np.eye(VOCABULARY)[labels]
    np.testing.assert_allclose(gradient[mask], (softmax(logits, -1) - one_hot)[mask] / BATCH, atol=1e-6)


def test_ignore_class(data):
    labels, logits, mask = data
    padded = np.where(mask, labels, 0)
    expected = (steps(labels, logits) * mask).sum(axis=1).mean()
    np.testing.assert_allclose(SequenceCrossentropy(ignore_class=0)(padded, logits), expected, rtol=1e-6)
    np.testing.assert_allclose(SequenceCrossentropy(ignore_class=-1)(np.where(mask, labels, -1), logits), expected)
    first = np.ones_like(mask)
    first[:, 0] = False
    both = (steps(labels, logits) * mask * first).sum(axis=1).mean()
    np.testing.assert_allclose(SequenceCrossentropy(ignore_class=0)(padded, masked(logits, first)), both, rtol=1e-6)


def test_sample_weights(data):
    labels, logits, mask = data
    costs = steps(labels, logits) * mask
    per_sequence, per_step = np.array([0.0, 1.0, 2.0, 3.0]), np.random.default_rng(0).random((BATCH, TIME))
    loss, prediction = SequenceCrossentropy(), masked(logits, mask)
    np.testing.assert_allclose(loss(labels, prediction, per_sequence), (costs.sum(1) * per_sequence).mean(), rtol=1e-6)
    np.testing.assert_allclose(loss(labels, prediction, per_step), (costs * per_step).sum(1).mean(), rtol=1e-6)
    np.testing.assert_allclose(loss(labels, prediction, 2.0), 2 * costs.sum(1).mean(), rtol=1e-6)
    column = per_sequence[:, None]
    np.testing.assert_allclose(loss(labels, prediction, column), (costs.sum(1) * per_sequence).mean(), rtol=1e-6)
    weighted = SequenceCrossentropy(reduction="mean_with_sample_weight")(labels, prediction, per_sequence)
    np.testing.assert_allclose(weighted, np.average(costs.sum(1), weights=per_sequence), rtol=1e-6)


def test_probabilities(data):
    labels, logits, mask = data
    expected = (steps(labels, logits) * mask).sum(axis=1).mean()
    loss = SequenceCrossentropy(from_logits=False)
    np.testing.assert_allclose(loss(labels, masked(softmax(logits, -1), mask)), expected, rtol=1e-5)
    certain = np.eye(VOCABULARY, dtype="float32")[labels]
    assert float(loss(labels, certain)) == 0.0
    assert np.isfinite(float(loss((labels + 1) % VOCABULARY, certain)))


@pytest.mark.parametrize("from_logits", [True, False])
def test_label_smoothing(data, from_logits):
    labels, logits, _ = data
    smoothed = 0.9 * np.eye(VOCABULARY)[labels] + 0.1 / VOCABULARY
    expected = -(smoothed * log_softmax(logits.astype("float64"), -1)).sum(axis=(1, 2)).mean()
    prediction = logits if from_logits else softmax(logits, -1)
    loss = SequenceCrossentropy(from_logits=from_logits, label_smoothing=0.1)
    np.testing.assert_allclose(loss(labels, prediction), expected, rtol=1e-5)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("from_logits", [True, False])
def test_votes(data, from_logits, label_smoothing):
    """The value is sum_v votes_v log p(v), and the gradient votes - n p. Masked votes may have any value."""
    _, logits, mask = data
    votes = np.random.default_rng(1).multinomial(10, np.ones(VOCABULARY) / VOCABULARY, size=(BATCH, TIME))
    smoothed = (1 - label_smoothing) * votes + label_smoothing * 10 / VOCABULARY
    expected = -((smoothed * log_softmax(logits.astype("float64"), -1)).sum(-1) * mask).sum(1)
    loss = SequenceCrossentropy(from_logits=from_logits, label_smoothing=label_smoothing, reduction=None)
    variable = tf.Variable(logits)
    with tf.GradientTape() as tape:
        prediction = tf.identity(variable) if from_logits else tf.nn.softmax(variable)
        prediction._keras_mask = tf.constant(mask)
        value = loss(np.where(mask[..., None], votes, np.nan), prediction)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    expected_gradient = np.where(mask[..., None], 10 * softmax(logits.astype("float64"), -1) - smoothed, 0.0)
    np.testing.assert_allclose(tape.gradient(value, variable), expected_gradient, rtol=1e-4, atol=1e-4)
    if from_logits and not label_smoothing:
        total = sequence_log_likelihood(votes, logits, mask=mask)
        np.testing.assert_allclose(total, -expected, rtol=1e-5)


def test_votes_of_one_word_are_its_label(data):
    labels, logits, mask = data
    one_hot = np.eye(VOCABULARY, dtype="float32")[labels]
    for options in ({}, {"label_smoothing": 0.2}, {"from_logits": False}):
        loss = SequenceCrossentropy(**options)
        prediction = logits if loss.from_logits else softmax(logits, -1)
        expected = loss(labels, masked(prediction, mask))
        np.testing.assert_allclose(loss(one_hot, masked(prediction, mask)), expected, rtol=1e-5)


def test_a_word_without_votes_may_be_impossible():
    logits = tf.Variable([[[0.0, 0.0, -np.inf]]])
    with tf.GradientTape() as tape:
        value = SequenceCrossentropy()(np.array([[[2.0, 1.0, 0.0]]]), tf.identity(logits))
    np.testing.assert_allclose(value, 3 * np.log(2), rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(value, logits), [[[-0.5, 0.5, 0.0]]], rtol=1e-6)


def test_votes_have_no_class_to_ignore(data):
    _, logits, _ = data
    with pytest.raises(ValueError, match=r"the weight 0.*Received: y_true\.shape=\(4, 4, 7\), ignore_class=0"):
        SequenceCrossentropy(ignore_class=0)(np.ones_like(logits), logits)


def test_extreme_logits_are_finite(data):
    labels, logits, _ = data
    for dtype, scale in (("float32", 1e4), ("float16", 1e4), ("bfloat16", 1e4)):
        prediction = tf.cast(logits * scale / np.abs(logits).max(), dtype)
        value = SequenceCrossentropy()(labels, prediction)
        assert value.dtype == tf.float32
        assert np.isfinite(float(value))


def test_sequence_log_likelihood(data):
    labels, logits, mask = data
    expected = -(steps(labels, logits) * mask).sum(axis=1)
    np.testing.assert_allclose(sequence_log_likelihood(labels, logits, mask=mask), expected, rtol=1e-6)
    np.testing.assert_allclose(sequence_log_likelihood(labels, masked(logits, mask)), expected, rtol=1e-6)
    padded = np.where(mask, labels, 0)
    np.testing.assert_allclose(sequence_log_likelihood(padded, logits, ignore_class=0), expected, rtol=1e-6)
    all_steps = np.ones_like(mask)
    explicit = sequence_log_likelihood(labels, masked(logits, mask), mask=all_steps)
    np.testing.assert_allclose(explicit, -steps(labels, logits).sum(axis=1), rtol=1e-6)


def model():
    tokens = keras.Input((None,), dtype="int32")
    logits = keras.layers.Dense(VOCABULARY)(keras.layers.Embedding(VOCABULARY, 8, mask_zero=True)(tokens))
    return keras.Model(tokens, WithMask()(logits))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_fit(data, jit_compile):
    labels, _, mask = data
    tokens = np.where(mask, labels, 0)
    network = model()
    network.compile("sgd", SequenceCrossentropy(), jit_compile=jit_compile)
    expected = (steps(labels, network(tokens).numpy()) * mask).sum(axis=1).mean()
    history = network.fit(tokens, labels, batch_size=BATCH, verbose=0)
    assert history.history["loss"][0] == pytest.approx(expected, rel=1e-5)


def test_evaluate_weights_batches_by_their_size(data):
    labels, _, _ = data
    network = model()
    network.compile("sgd", SequenceCrossentropy())
    expected = steps(labels, network(labels).numpy()).sum(axis=1).mean()
    assert network.evaluate(labels, labels, batch_size=3, verbose=0) == pytest.approx(expected, rel=1e-5)


def test_errors(data):
    labels, logits, _ = data
    with pytest.raises(ValueError, match=r"Received: label_smoothing=1\.0"):
        SequenceCrossentropy(label_smoothing=1.0)
    with pytest.raises(ValueError, match=r"Received: y_true\.shape=\(4, 4, 1\)"):
        SequenceCrossentropy()(labels[..., None], logits)
    with pytest.raises(ValueError, match=r"Received: sample_weight\.shape=\(4, 3\)"):
        SequenceCrossentropy()(labels, logits, np.ones((4, 3)))
    with pytest.raises(ValueError, match=r"Received: mask\.shape=\(4,\)"):
        sequence_log_likelihood(labels, logits, mask=np.ones(4, bool))
