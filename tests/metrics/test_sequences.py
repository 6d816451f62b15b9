"""Tests the uncertainty of generated sequences against enumeration with a tiny model."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import entr, log_softmax, logsumexp

from keras_vattn.metrics import sequence_uncertainty

NUM_DRAWS, NUM_WORDS, VOCABULARY = 4, 3, 3
# Every sentence of three words.
SENTENCES = np.array(list(itertools.product(range(VOCABULARY), repeat=NUM_WORDS)))


def log_words_of(sentences, seed=0):
    """Return log p_m(v | y_<t), (M, B, T, V). Each draw of the model has a table of logits for every prefix."""
    generator = np.random.default_rng(seed)
    tables = [generator.normal(size=(NUM_DRAWS, VOCABULARY**t, VOCABULARY)) for t in range(NUM_WORDS)]
    powers = VOCABULARY ** np.arange(NUM_WORDS)
    rows = [sentences[:, :t] @ powers[:t] for t in range(NUM_WORDS)]
    return log_softmax(np.stack([table[:, row] for table, row in zip(tables, rows, strict=True)], axis=2), axis=-1)


def numpy_results(log_words, targets, mask=None):
    draws = tf.constant(log_words, tf.float32)
    mask = np.ones(targets.shape, bool) if mask is None else mask
    results = sequence_uncertainty(lambda number: draws[number], len(log_words), targets, mask)
    return {name: x.numpy() for name, x in results.items()}


def test_enumeration():
    """The probabilities of all sentences sum to 1 in every draw, and every result matches its formula."""
    log_words = log_words_of(SENTENCES)
    results = numpy_results(log_words, SENTENCES)
    np.testing.assert_allclose(np.exp(results["log_likelihoods"]).sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(np.exp(results["predictive_log_likelihood"]).sum(), 1.0, rtol=1e-5)
    for row, sentence in enumerate(SENTENCES):
        log_p_words = np.array([[values[row, t, word] for t, word in enumerate(sentence)] for values in log_words])
        np.testing.assert_allclose(results["word_log_likelihoods"][:, row], log_p_words, rtol=1e-5)
        words = np.exp(log_words[:, row])
        entropy = entr(words.mean(axis=0)).sum(axis=-1)
        information = entropy - entr(words).sum(axis=-1).mean(axis=0)
        np.testing.assert_allclose(results["word_entropy"][row], entropy, rtol=1e-5)
        np.testing.assert_allclose(results["word_mutual_information"][row], information, atol=1e-6)
        assert results["entropy"][row] == pytest.approx(entropy.mean(), rel=1e-5)
        assert results["mutual_information"][row] == pytest.approx(information.mean(), abs=1e-6)
        log_likelihoods = log_p_words.sum(axis=1)
        predictive = logsumexp(log_likelihoods) - np.log(NUM_DRAWS)
        assert results["predictive_log_likelihood"][row] == pytest.approx(predictive, rel=1e-5)
        expected = (predictive - log_likelihoods.mean()) / NUM_WORDS
        assert results["reverse_mutual_information"][row] == pytest.approx(expected, abs=1e-6)
    assert (results["num_words"] == NUM_WORDS).all()


def test_the_reverse_mutual_information():
    """The mean of the reverse mutual information over all sentences is the mean of KL(p || p_m) over the draws."""
    log_words = log_words_of(SENTENCES)
    results = numpy_results(log_words, SENTENCES)
    p = np.exp(results["predictive_log_likelihood"])
    divergences = [np.sum(p * (np.log(p) - values)) for values in results["log_likelihoods"]]
    sentence_information = results["reverse_mutual_information"] * NUM_WORDS
    assert np.sum(p * sentence_information) == pytest.approx(np.mean(divergences), rel=1e-4)


def test_padding_does_not_count_and_the_end_does():
    """A sentence has the same results alone and beside a longer sentence, whatever the padding contains."""
    log_words, targets = log_words_of(SENTENCES[:2]), SENTENCES[:2].copy()
    mask = np.array([[True, True, False], [True, True, True]])
    targets[0, 2] = 99
    log_words[:, 0, 2] = np.nan
    results, single = numpy_results(log_words, targets, mask), numpy_results(log_words[:, :1, :2], targets[:1, :2])
    assert results["num_words"].tolist() == [2, 3]
    for name, x in single.items():
        both = results[name]
        if name.startswith("word_"):
            assert (both[..., 0, 2] == 0.0).all() and (both[..., 1, 2] != 0.0).all(), name
            both = both[..., :2]
        # Results per draw have the sentences on the second axis.
        axis = 1 if "log_likelihoods" in name else 0
        np.testing.assert_allclose(np.take(both, [0], axis=axis), x, rtol=1e-5, err_msg=name)


def test_equal_draws_have_no_mutual_information():
    log_words = np.repeat(log_words_of(SENTENCES)[:1], 5, axis=0)
    results = numpy_results(log_words, SENTENCES)
    for name in ("word_mutual_information", "mutual_information", "reverse_mutual_information"):
        np.testing.assert_allclose(results[name], 0.0, atol=1e-6)
    np.testing.assert_allclose(results["predictive_log_likelihood"], results["log_likelihoods"][0], rtol=1e-5)


def test_impossible_words_add_nothing():
    """A certain draw has no entropy; if two certain draws differ, all uncertainty is disagreement."""
    log_words = np.full((2, 1, 1, 3), -np.inf)
    log_words[0, 0, 0, 0] = log_words[1, 0, 0, 1] = 0.0
    results = numpy_results(log_words, np.array([[0]]))
    assert results["word_entropy"][0, 0] == results["word_mutual_information"][0, 0] == pytest.approx(np.log(2))
    assert results["predictive_log_likelihood"][0] == pytest.approx(-np.log(2))


def test_in_graph_with_unknown_shapes():
    draws = tf.constant(log_words_of(SENTENCES), tf.float32)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([], tf.int32)], autograph=False)
    def in_graph(targets, num_samples):
        batch = draws[:, : tf.shape(targets)[0], : tf.shape(targets)[1]]
        return sequence_uncertainty(lambda number: batch[number], num_samples, targets, tf.ones_like(targets, "bool"))

    for num_draws, num_rows in ((4, 5), (2, 27)):
        targets = SENTENCES[:num_rows].astype("int32")
        results, expected = in_graph(targets, num_draws), numpy_results(draws[:num_draws, :num_rows], targets)
        for name, x in expected.items():
            np.testing.assert_allclose(results[name], x, rtol=1e-5, atol=1e-6, err_msg=name)
    with pytest.raises(tf.errors.InvalidArgumentError, match="num_samples must be positive"):
        in_graph(targets, 0)


def test_errors():
    draw, targets = (lambda number: tf.zeros((2, 3, 4))), np.zeros((2, 3), int)
    with pytest.raises(ValueError, match=r"`num_samples` must be a positive integer. Received: num_samples=0"):
        sequence_uncertainty(draw, 0, targets, targets == 0)
    with pytest.raises(ValueError, match=r"Received: targets.shape=\(2, 3\), mask.shape=\(2,\)"):
        sequence_uncertainty(draw, 1, targets, [True, True])
    with pytest.raises(ValueError, match=r"for targets \(2, 3\). Received: draw\(number\).shape=\(2, 3\)"):
        sequence_uncertainty(lambda number: tf.zeros((2, 3)), 1, targets, targets == 0)
