"""Computes uncertainty metrics from samples, and gradient norms of the likelihood and the KL.

Shapes: M samples, N examples, C classes.
"""

import contextlib

import tensorflow as tf

import keras_vattn
from keras_vattn import metrics, random


def calibration(draws, labels):
    """Return metrics of the mean of sampled predictions `draws` (M, N, C). `labels`: classes (N,)."""
    return {
        "nll": metrics.negative_log_likelihood(draws, labels),
        "brier": metrics.brier_score(draws, labels),
        "ece": metrics.expected_calibration_error(draws, labels),
        "risk_coverage_area": metrics.risk_coverage_area(draws, labels),
    }


def means(draws):
    """Return the predictive entropy and the mutual information of sampled probabilities (M, N, C).
    Both are averaged over the examples, in nats."""
    return {
        "entropy": float(metrics.predictive_entropy(draws).mean()),
        "mutual_information": float(metrics.mutual_information(draws).mean()),
    }


def gradient_norms(model, inputs, value_of, drops):
    """Return the gradient norms of the log-likelihood in training mode ("likelihood") and of the weighted KL ("kl").

    `value_of` maps the model's outputs to the log-likelihood of each example. `drops`: whether the model has dropout.
    """
    variables = [variable.value for variable in model.trainable_variables]
    noise = contextlib.nullcontext()
    if drops or keras_vattn.stochastic_layers(model):
        noise = keras_vattn.Sampler(model, dropout=True).drawn_from(random.as_seed(0))
    with noise, tf.GradientTape(persistent=True) as tape:
        likelihood = tf.reduce_mean(value_of(model(inputs, training=True)))
        # In training mode, the KL weight would depend on the annealing step, which weights.npz lacks.
        model(inputs, training=False)
        divergence = sum(keras_vattn.divergences(model, weighted=True).values(), tf.zeros(()))
    norms = {}
    for name, value in (("likelihood", likelihood), ("kl", divergence)):
        gradients = tape.gradient(value, variables, unconnected_gradients="zero")
        norms[name] = float(tf.linalg.global_norm([tf.convert_to_tensor(gradient) for gradient in gradients]))
    return norms
