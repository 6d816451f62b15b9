"""Tests expected gradients of correct and faulty estimators, by enumeration of all samples in float64."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from estimator_cases import (
    GENERATOR,
    NAMES,
    POSTERIOR_LOGITS,
    PRIOR_LOGITS,
    SOURCE,
    STEPS,
    VOCABULARY,
    WORD_LOGITS,
    WORDS,
    all_draws,
    leave_one_out_mean,
    parameters,
    probability_of_draws,
    variables,
)
from wrong_estimators import WRONG

from keras_vattn.latent_alignment import estimators


def gradients(function):
    """Return the gradients of a function of the parameters, summed over steps, as a dictionary of arrays."""
    weights = variables()
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(function(*parameters(weights)))
    results = tape.gradient(value, weights, unconnected_gradients="zero")
    return {name: tf.convert_to_tensor(x).numpy() for name, x in results.items()}


def expected_gradients(estimator, num_samples, source="posterior"):
    """Return the expected gradient of an estimator over all samples."""

    def function(*values):
        drawn_from = values[1 if source == "prior" else 2]
        probability = tf.stop_gradient(probability_of_draws(drawn_from, num_samples))
        return probability * estimator(*(all_draws(x, num_samples) for x in values))

    return gradients(function)


def gradients_of_expectation(value, num_samples, source="posterior"):
    """Return the gradient of the expected value over all samples, including the gradient of their probabilities."""

    def function(*values):
        drawn_from = values[1 if source == "prior" else 2]
        return probability_of_draws(drawn_from, num_samples) * value(*(all_draws(x, num_samples) for x in values))

    return gradients(function)


def agree(first, second, atol=1e-10):
    return all(np.allclose(first[name], second[name], rtol=0, atol=atol) for name in NAMES)


def soft_baseline(_):
    return tf.constant(np.log([[[0.2], [0.5], [0.1]]]))


BASELINES = {"none": lambda _: 0.0, "soft": soft_baseline, "leave-one-out": leave_one_out_mean}


def log_mean_weight(log_likelihood, log_prior, log_posterior):
    log_weights = log_likelihood + log_prior - log_posterior
    return tf.reduce_logsumexp(log_weights, axis=-1) - np.log(log_weights.shape[-1])


@pytest.mark.parametrize(
    ("baseline", "num_samples"), [("none", 1), ("none", 2), ("soft", 1), ("soft", 2), ("leave-one-out", 2)]
)
@pytest.mark.parametrize("source", ["posterior", "prior"])
def test_score_function_gradient_equals_the_enumerated_gradient(source, baseline, num_samples):
    """Samples come from q for elbo/sample and from p for hard/sample."""

    def estimator(log_likelihood, log_prior, log_posterior):
        probability = log_prior if source == "prior" else log_posterior
        return estimators.score_function(log_likelihood, probability, BASELINES[baseline](log_likelihood))

    enumerated = gradients(lambda l, p, q: estimators.expectation(l, p if source == "prior" else q))  # noqa: E741
    assert agree(expected_gradients(estimator, num_samples, source), enumerated)


@pytest.mark.parametrize("num_samples", [1, 2, 3])
def test_importance_weighted_gradient_equals_the_gradient_of_its_expectation(num_samples):
    estimated = expected_gradients(estimators.importance_weighted, num_samples)
    assert agree(estimated, gradients_of_expectation(log_mean_weight, num_samples))
    if num_samples == 1:

        def elbo(log_likelihood, log_prior, log_posterior):
            return tf.reduce_sum(tf.exp(log_posterior) * (log_likelihood + log_prior - log_posterior), axis=-1)

        assert agree(estimated, gradients(elbo))


@pytest.mark.parametrize("num_samples", [2, 3])
def test_the_wake_sleep_gradient_matches_its_definition(num_samples):
    """The gradient is E_q sum_k v_k d(log p(y | z_k) + log p(z_k) + log q(z_k)), with weights v (Ba et al. 2015)."""
    log_likelihood, log_prior, log_posterior = (x.numpy()[0] for x in parameters(variables()))
    prior, posterior = np.exp(log_prior), np.exp(log_posterior)
    word = np.exp(WORD_LOGITS[0] - np.log(np.exp(WORD_LOGITS[0]).sum(-1, keepdims=True)))
    expected = {name: np.zeros_like(x[0]) for name, x in zip(NAMES, (PRIOR_LOGITS, POSTERIOR_LOGITS, WORD_LOGITS))}
    for step in range(STEPS):
        for draws in itertools.product(range(SOURCE), repeat=num_samples):
            draws = np.array(draws)
            weights = np.exp(log_likelihood[step] + log_prior[step] - log_posterior[step])[draws]
            for weight, z in zip(weights / weights.sum(), draws):
                scale = posterior[step, draws].prod() * weight
                expected["prior"][step] += scale * (np.eye(SOURCE)[z] - prior[step])
                expected["posterior"][step] += scale * (np.eye(SOURCE)[z] - posterior[step])
                expected["words"][step, z] += scale * (np.eye(VOCABULARY)[WORDS[0, step]] - word[step, z])
    estimated = expected_gradients(estimators.wake_sleep, num_samples)
    assert agree(estimated, {name: x[None] for name, x in expected.items()})


@pytest.mark.parametrize("wrong", WRONG, ids=lambda x: x.__name__)
@pytest.mark.parametrize("source", ["posterior", "prior"])
def test_wrong_score_functions_fail_the_same_check(wrong, source):
    def estimator(log_likelihood, log_prior, log_posterior):
        return wrong(log_likelihood, log_prior if source == "prior" else log_posterior, 0.0)

    enumerated = gradients(lambda l, p, q: estimators.expectation(l, p if source == "prior" else q))  # noqa: E741
    assert not agree(expected_gradients(estimator, 1, source), enumerated, atol=1e-3)


def test_wrong_importance_weighted_estimators_fail_the_same_check():
    truth = gradients_of_expectation(log_mean_weight, 2)

    def own_draw_in_the_baseline(log_likelihood, log_prior, log_posterior):
        value = log_mean_weight(log_likelihood, log_prior, log_posterior)
        baseline = tf.reduce_mean(log_likelihood + log_prior - log_posterior, axis=-1)
        score = tf.reduce_sum(log_posterior - tf.stop_gradient(log_posterior), axis=-1)
        return value + tf.stop_gradient(value - baseline) * score

    def weights_without_q(log_likelihood, log_prior, log_posterior):
        return estimators.importance_weighted(log_likelihood, log_prior, tf.stop_gradient(log_posterior))

    for wrong in (log_mean_weight, own_draw_in_the_baseline, weights_without_q):
        assert not agree(expected_gradients(wrong, 2), truth, atol=1e-3)


def test_wrong_wake_sleep_estimators_fail_the_same_check():
    truth = expected_gradients(estimators.wake_sleep, 2)

    def weights_not_stopped(log_likelihood, log_prior, log_posterior):
        normalized_weights = tf.nn.softmax(log_likelihood + log_prior - log_posterior)
        return tf.reduce_sum(normalized_weights * (log_likelihood + log_prior + log_posterior), axis=-1)

    def equal_weights(*values):
        return tf.reduce_mean(sum(values), axis=-1)

    for wrong in (weights_not_stopped, equal_weights, estimators.importance_weighted):
        assert not agree(expected_gradients(wrong, 2), truth, atol=1e-3)


def test_the_leave_one_out_baseline_does_not_depend_on_its_own_weight():
    log_weights = tf.constant(GENERATOR.normal(size=(1, 2, 3)))
    moved = log_weights + tf.constant([0.0, 5.0, 0.0], tf.float64)
    before, after = estimators.leave_one_out(log_weights).numpy(), estimators.leave_one_out(moved).numpy()
    np.testing.assert_allclose(before[..., 1], after[..., 1])
    assert (np.abs(before[..., [0, 2]] - after[..., [0, 2]]) > 0.1).all()
    w = np.exp(log_weights.numpy()[0, 0])
    expected = [np.log((w[1] + w[2] + np.sqrt(w[1] * w[2])) / 3)]
    np.testing.assert_allclose(before[0, 0, :1], expected)
