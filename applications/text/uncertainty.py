"""Computes how uncertain a model is about the sentences that it has generated.

Shapes: B sentences, T tokens including the end, V words in the vocabulary, M samples of the noise.
"""

import numpy as np
import tensorflow as tf

from applications.common.errors import InputError
from applications.text.text import PAD, START
from keras_vattn import random
from keras_vattn.metrics import sequence_uncertainty

# Measures per sentence without sampling, measures per sentence with sampling, and measures per word.
PLAIN = ("num_words", "log_likelihood", "entropy")
DRAWN = ("predictive_log_likelihood", "log_likelihood_sd", "mutual_information", "reverse_mutual_information")
OF_WORDS = ("word_entropy", "word_mutual_information")


def require_noise(noise, num_draws):
    """Raise `InputError` if samples are requested, but the model has no noise to sample."""
    if num_draws and noise is None:
        raise InputError(f"--num-draws: must be 0 for a model with neither noise nor dropout. Received: {num_draws}")


def uncertainty_of(log_words, target, noise=None, num_samples=1, seed=0):
    """Return a dictionary of uncertainty measures of generated sentences, as tensors.

    It contains the results of `keras_vattn.metrics.sequence_uncertainty`, and "log_likelihood" (B,): log p of the
    sentence without noise. The function also runs in graph mode.

    Args:
        log_words: Function that returns log p (B, T, V) of every word, given the words before it in `target`.
        target: Generated ids (B, T), with padding after the end.
        noise: `keras_vattn.Sampler` that samples once per sentence; `None` omits the measures that need samples.
        num_samples: Number of samples, M.
        seed: Integer, or a scalar tensor.
    """
    counted = tf.not_equal(target, PAD)
    at_mean = sequence_uncertainty(lambda number: log_words(), 1, target, counted)
    figures = {name: at_mean[name] for name in ("num_words", "entropy", "word_entropy")}
    figures["log_likelihood"] = at_mean["log_likelihoods"][0]
    if noise is None:
        return figures
    seed = random.as_seed(seed)

    def draw(number):
        with noise.drawn_from(random.fold_in(seed, number)):
            return log_words()

    return figures | sequence_uncertainty(draw, num_samples, target, counted)


def shifted(target):
    """Return decoder inputs (B, T) for generated ids (B, T): the start id, then all ids except the last."""
    before = tf.concat([tf.fill([tf.shape(target)[0], 1], START), target[:, :-1]], axis=1)
    return tf.where(tf.not_equal(target, PAD), before, PAD)


def written_of(texts, words, figures):
    """Return a dictionary for each sentence: "text", "words" (including the end) and all measures.

    `texts` are strings (B,), `words` are strings (B, T), and `figures` is the result of `uncertainty_of`.
    """
    figures = {name: np.array(x) for name, x in figures.items()}
    if "log_likelihoods" in figures:
        figures["log_likelihood_sd"] = figures["log_likelihoods"].std(axis=0)
    sentences = []
    for row, count in enumerate(figures["num_words"]):
        sentence = {"text": texts[row].decode(), "words": [word.decode() for word in words[row][:count]]}
        sentence |= {name: figures[name][row] for name in (*PLAIN, *DRAWN) if name in figures}
        sentences.append(sentence | {name: figures[name][row, :count] for name in OF_WORDS if name in figures})
    return sentences


def words_with_nats(sentence):
    """Return (word, nats) for each word: its mutual information or, without samples, its entropy."""
    nats = sentence.get("word_mutual_information", sentence["word_entropy"])
    return [(word, float(word_nats)) for word, word_nats in zip(sentence["words"], nats, strict=True)]


def lines_of(sentences):
    """Return the lines of a tab-separated table: a header, and one line per dictionary of `written_of`.
    `None` becomes a blank line. If a cell contains one value per word, spaces separate the values."""
    sentences = list(sentences)
    first = next(filter(None, sentences), {})
    heads = ["text", *(name for name in (*PLAIN, *DRAWN, "words", *OF_WORDS) if name in first)]
    rows = ("\t".join(_cell(sentence[name]) for name in heads) if sentence else "" for sentence in sentences)
    return [*(["\t".join(heads)] if first else []), *rows]


def _cell(value):
    if isinstance(value, str):
        return value
    if isinstance(value, list | np.ndarray):
        return " ".join(map(_cell, value))
    return str(value) if isinstance(value, np.integer) else f"{value:.4f}"
