"""Defines faulty score-function estimators, which the estimator tests must detect."""

import tensorflow as tf


def reward_not_stopped(log_likelihood, log_probability, baseline):
    return tf.reduce_mean(log_likelihood + (log_likelihood - baseline) * log_probability, axis=-1)


def score_term_missing(log_likelihood, log_probability, baseline):
    return tf.reduce_mean(log_likelihood, axis=-1)


def baseline_under_q_with_gradient(log_likelihood, log_probability, baseline):
    # Wrong: the baseline, the expectation under q, must not have a gradient.
    expected = tf.reduce_logsumexp(log_probability + log_likelihood, axis=-1, keepdims=True)
    reward = tf.stop_gradient(log_likelihood) - expected
    return tf.reduce_mean(log_likelihood + reward * log_probability, axis=-1)


def baseline_of_the_own_draw(log_likelihood, log_probability, baseline):
    score = log_probability - tf.stop_gradient(log_probability)
    return tf.reduce_mean(log_likelihood + tf.stop_gradient(0.5 * log_likelihood) * score, axis=-1)


def renormalised_crossentropy(log_likelihood, log_probability, baseline):
    """Wrong: a softmax cross-entropy of the scored values mixes the score terms of all words in its normaliser."""
    reward = tf.stop_gradient(log_likelihood - baseline)
    scored = log_likelihood + reward * (log_probability - tf.stop_gradient(log_probability))
    others = tf.math.log1p(-tf.exp(tf.stop_gradient(log_likelihood)))
    rest = others + (tf.stop_gradient(others) - baseline) * (log_probability - tf.stop_gradient(log_probability))
    return tf.reduce_mean(scored - tf.reduce_logsumexp(tf.stack([scored, rest]), axis=0), axis=-1)


WRONG = [
    reward_not_stopped,
    score_term_missing,
    baseline_under_q_with_gradient,
    baseline_of_the_own_draw,
    renormalised_crossentropy,
]
