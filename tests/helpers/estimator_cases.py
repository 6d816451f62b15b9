"""Provides a small float64 model with one word per step, and all samples of its latent variable."""

import itertools

import numpy as np
import tensorflow as tf

STEPS, SOURCE, VOCABULARY = 3, 5, 4
GENERATOR = np.random.default_rng(7)
PRIOR_LOGITS = GENERATOR.normal(size=(1, STEPS, SOURCE))
POSTERIOR_LOGITS = GENERATOR.normal(size=(1, STEPS, SOURCE), scale=1.5)
WORD_LOGITS = GENERATOR.normal(size=(1, STEPS, SOURCE, VOCABULARY), scale=1.5)
WORDS = GENERATOR.integers(0, VOCABULARY, size=(1, STEPS))
NAMES = ("prior", "posterior", "words")


def variables():
    return {name: tf.Variable(x) for name, x in zip(NAMES, (PRIOR_LOGITS, POSTERIOR_LOGITS, WORD_LOGITS))}


def parameters(weights):
    """Return log p(y | z), log p(z) and log q(z) for all z, (1, T, S), float64."""
    words = tf.one_hot(WORDS, VOCABULARY, dtype=tf.float64)[:, :, None]
    return (
        tf.reduce_sum(tf.nn.log_softmax(weights["words"]) * words, axis=-1),
        tf.nn.log_softmax(weights["prior"]),
        tf.nn.log_softmax(weights["posterior"]),
    )


def all_draws(values, num_samples):
    """Return values (1, T, S) at all S^K tuples of samples, (S^K, T, K)."""
    index = np.array(list(itertools.product(range(SOURCE), repeat=num_samples)))
    return tf.transpose(tf.gather(values[0], index, axis=1), (1, 0, 2))


def probability_of_draws(log_probability, num_samples):
    return tf.exp(tf.reduce_sum(all_draws(log_probability, num_samples), axis=-1))  # (S^K, T)


def leave_one_out_mean(log_likelihood):
    total = tf.reduce_sum(log_likelihood, axis=-1, keepdims=True)
    return (total - log_likelihood) / max(log_likelihood.shape[-1] - 1, 1)
