"""Figures of draws of a prediction, and norms of the gradients of both parts of a loss.

Shapes: M draws, N examples, C classes.
"""

import contextlib

import tensorflow as tf

import keras_vattn
from keras_vattn import metrics, random


def calibration(draws, labels):
    """Return the quality of the mean of draws (M, N, C) of probabilities, given the right classes (N,)."""
    return {
        "nll": metrics.negative_log_likelihood(draws, labels),
        "brier": metrics.brier_score(draws, labels),
        "ece": metrics.expected_calibration_error(draws, labels),
        "risk_coverage_area": metrics.risk_coverage_area(draws, labels),
    }


def means(draws):
    """Return the entropy of the mean of draws (M, N, C) and its part that draws disagree on, in nats."""
    return {
        "entropy": float(metrics.predictive_entropy(draws).mean()),
        "mutual_information": float(metrics.mutual_information(draws).mean()),
    }


def gradient_norms(model, inputs, value_of, drops):
    """Return the norms of the gradients of the log-likelihood of one batch in training, and of the weighted KL.

    `value_of` is a function of the model's outputs, the log-likelihood of each example; `drops`: it has dropout.
    """
    variables = [variable.value for variable in model.trainable_variables]
    noise = contextlib.nullcontext()
    if drops or keras_vattn.stochastic_layers(model):
        noise = keras_vattn.Sampler(model, dropout=True).drawn_from(random.as_seed(0))
    with noise, tf.GradientTape(persistent=True) as tape:
        likelihood = tf.reduce_mean(value_of(model(inputs, training=True)))
        # A model that was read from a file has forgotten how far annealing had come.
        model(inputs, training=False)
        divergence = sum(keras_vattn.divergences(model, weighted=True).values(), tf.zeros(()))
    norms = {}
    for name, value in (("likelihood", likelihood), ("kl", divergence)):
        gradients = tape.gradient(value, variables, unconnected_gradients="zero")
        norms[name] = float(tf.linalg.global_norm([tf.convert_to_tensor(gradient) for gradient in gradients]))
    return norms
