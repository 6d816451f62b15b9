import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax, logsumexp, softmax
from tiers import jit_compile

from keras_vattn.metrics import Perplexity, predictive_log_likelihood

BATCH, TIME, VOCABULARY = 3, 5, 7


@pytest.fixture
def data():
    generator = np.random.default_rng(5)
    logits = generator.normal(size=(BATCH, TIME, VOCABULARY), scale=2.0).astype("float32")
    labels = generator.integers(1, VOCABULARY, size=(BATCH, TIME))
    mask = np.arange(TIME) < np.array([5, 2, 0])[:, None]
    return labels, logits, mask


def costs(labels, logits):
    return -np.take_along_axis(log_softmax(logits.astype("float64"), -1), labels[..., None], -1)[..., 0]


def masked(logits, mask):
    logits = tf.constant(logits)
    logits._keras_mask = tf.constant(mask)
    return logits


def test_pools_tokens_over_batches_of_different_lengths(data):
    labels, logits, mask = data
    metric = Perplexity()
    metric.update_state(labels[:1], masked(logits[:1], mask[:1]))
    metric.update_state(labels[1:, :2], masked(logits[1:, :2], mask[1:, :2]))
    expected = np.exp((costs(labels, logits) * mask).sum() / mask.sum())
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)
    metric.reset_state()
    assert np.isnan(float(metric.result()))


def test_a_uniform_model_has_the_size_of_its_vocabulary(data):
    labels, logits, _ = data
    assert float(Perplexity()(labels, np.zeros_like(logits))) == pytest.approx(VOCABULARY, rel=1e-6)


def test_probabilities_and_ignore_class(data):
    labels, logits, mask = data
    expected = np.exp((costs(labels, logits) * mask).sum() / mask.sum())
    metric = Perplexity(from_logits=False, ignore_class=0)
    assert float(metric(np.where(mask, labels, 0), softmax(logits, -1))) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("shape", [(BATCH,), (BATCH, TIME)])
def test_sample_weights_weigh_likelihood_and_count(data, shape):
    labels, logits, mask = data
    weights = np.random.default_rng(1).random(shape)
    token_weights = np.broadcast_to(weights.reshape(BATCH, -1), mask.shape) * mask
    expected = np.exp((costs(labels, logits) * token_weights).sum() / token_weights.sum())
    assert float(Perplexity()(labels, masked(logits, mask), weights)) == pytest.approx(expected, rel=1e-5)


def test_log_likelihoods(data):
    labels, logits, mask = data
    log_likelihood = -(costs(labels, logits) * mask).sum(axis=1)
    metric = Perplexity(kind="elbo")
    metric.update_log_likelihood(log_likelihood[:2], mask.sum(axis=1)[:2])
    metric.update_log_likelihood(tf.constant(log_likelihood[2:], tf.float32), tf.constant(mask.sum(axis=1)[2:]))
    plug_in = Perplexity()(labels, masked(logits, mask))
    assert float(metric.result()) == pytest.approx(float(plug_in), rel=1e-5)


@jit_compile
def test_in_fit_and_evaluate(data, jit_compile):
    labels, _, _ = data
    model = keras.Sequential(
        [keras.Input((TIME,), dtype="int32"), keras.layers.Embedding(VOCABULARY, 8), keras.layers.Dense(VOCABULARY)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=[Perplexity()], jit_compile=jit_compile)
    model.fit(labels, labels, verbose=0)
    result = model.evaluate(labels, labels, verbose=0, batch_size=2, return_dict=True)
    assert result["plug_in_perplexity"] == pytest.approx(np.exp(result["loss"]), rel=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_counts_beyond_the_float32_integers(two_replicas, jit_compile):
    """A float32 sum of ones would stop at 2**24. Sums are tested under XLA, and on two replicas without XLA."""
    with contextlib.nullcontext() if jit_compile else two_replicas.scope():
        metric = Perplexity("elbo")
    metric.num_tokens.assign(2.0**26)
    metric.negative_log_likelihood.assign(2.0**26)
    update = tf.function(lambda: metric.update_log_likelihood([-3.0], [1]), jit_compile=jit_compile)
    for _ in range(4):
        update() if jit_compile else two_replicas.run(update)
    added = 4 if jit_compile else 8
    sums = [float(tf.convert_to_tensor(x.value)) for x in (metric.num_tokens, metric.negative_log_likelihood)]
    assert sums == [2**26 + added, 2**26 + 3 * added]
    assert metric.result().dtype == "float32"
    assert float(metric.result()) == pytest.approx(np.exp(sums[1] / sums[0]), rel=1e-6)


def test_predictive_log_likelihood():
    values = np.random.default_rng(2).normal(size=(6, 4), loc=-2000.0, scale=5.0)
    expected = logsumexp(values, axis=0) - np.log(6)
    np.testing.assert_allclose(predictive_log_likelihood(values), expected, rtol=1e-12)
    np.testing.assert_allclose(predictive_log_likelihood(values[:1]), values[0])
    # A sentence is possible if at least one draw gives it a probability above 0.
    impossible = np.array([[-np.inf, -np.inf], [0.0, -np.inf]])
    np.testing.assert_allclose(predictive_log_likelihood(impossible), [-np.log(2), -np.inf])
    with pytest.raises(ValueError, match=r"Received: log_likelihoods\.shape=\(3,\)"):
        predictive_log_likelihood(np.zeros(3))


def test_weights_of_all_words_have_no_number_of_tokens():
    with pytest.raises(ValueError, match=r"must be integer labels.*Received: y_true\.shape=\(2, 5, 10\)"):
        Perplexity()(np.zeros((2, 5, 10), "float32"), np.zeros((2, 5, 10), "float32"))
