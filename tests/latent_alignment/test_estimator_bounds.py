"""Tests the values of the estimators: the order of the bounds, equality cases, K-max and soft attention."""

import numpy as np
import tensorflow as tf
from estimator_cases import SOURCE, STEPS, all_draws, parameters, probability_of_draws, variables
from keras import ops

import keras_vattn
from keras_vattn import LatentObjective
from keras_vattn.latent_alignment import estimators


def expected_values(value, num_samples):
    values = parameters(variables())
    drawn = value(*(all_draws(x, num_samples) for x in values))
    return tf.reduce_sum(probability_of_draws(values[2], num_samples) * drawn, axis=0).numpy()


def exact_marginal():
    log_likelihood, log_prior, _ = parameters(variables())
    return estimators.marginal(log_likelihood, log_prior).numpy()[0]


def elbo():
    log_likelihood, log_prior, log_posterior = parameters(variables())
    divergence = tf.reduce_sum(tf.exp(log_posterior) * (log_posterior - log_prior), axis=-1)
    return (estimators.expectation(log_likelihood, log_posterior) - divergence).numpy()[0]


def test_expected_bounds_are_ordered():
    bounds = [expected_values(estimators.importance_weighted, count) for count in (1, 2, 3, 4)]
    np.testing.assert_allclose(bounds[0], elbo())
    for smaller, larger in zip(bounds, [*bounds[1:], exact_marginal()]):
        assert (larger > smaller + 1e-3).all()
    np.testing.assert_allclose(expected_values(estimators.wake_sleep, 3), bounds[2])


def test_importance_weighted_bound_is_above_the_mean_of_logs():
    log_likelihood, log_prior, log_posterior = (all_draws(x, 3) for x in parameters(variables()))
    bound = estimators.importance_weighted(log_likelihood, log_prior, log_posterior).numpy()
    mean_of_logs = tf.reduce_mean(log_likelihood + log_prior - log_posterior, axis=-1).numpy()
    assert (bound >= mean_of_logs - 1e-12).all()
    assert (bound > mean_of_logs + 1e-3).any()


def test_at_the_true_posterior_all_bounds_are_exact():
    log_likelihood, log_prior, _ = parameters(variables())
    posterior = tf.nn.log_softmax(log_likelihood + log_prior)
    divergence = tf.reduce_sum(tf.exp(posterior) * (posterior - log_prior), axis=-1)
    bound = estimators.expectation(log_likelihood, posterior) - divergence
    np.testing.assert_allclose(bound[0], exact_marginal())
    draws = [all_draws(x, 2) for x in (log_likelihood, log_prior, posterior)]
    every_draw = np.broadcast_to(exact_marginal(), (SOURCE**2, STEPS))
    np.testing.assert_allclose(estimators.importance_weighted(*draws), every_draw)


def test_the_elbo_at_q_equal_to_p_is_the_hard_bound():
    log_likelihood, log_prior, _ = parameters(variables())
    hard = tf.reduce_sum(tf.exp(log_prior) * log_likelihood, axis=-1)
    np.testing.assert_allclose(estimators.expectation(log_likelihood, log_prior), hard)
    assert (estimators.expectation(log_likelihood, log_prior).numpy()[0] < exact_marginal()).all()


def test_k_max():
    """Renormalised K-max is exact at K = S but not monotone in K."""
    prior = tf.constant([[[0.6, 0.3, 0.1]]])
    log_likelihood = ops.log(tf.constant([[[0.5, 0.1, 0.9]]]))
    values = []
    for top_k in (1, 2, 3, 7):
        objective = LatentObjective("marginal", "top_k", top_k=top_k)
        attention = keras_vattn.CategoricalAttention(objective=objective)
        latent = attention(tf.zeros((1, 1, 2)), tf.eye(3)[None], logits=ops.log(prior))
        log_likelihoods = ops.log(latent["candidates"] @ tf.exp(log_likelihood[0, 0])[:, None])[..., 0]
        bound = keras_vattn.LatentLogLikelihood(objective)(log_likelihoods, latent["log_prior"])
        values.append(float(ops.exp(bound)[0, 0]))
    np.testing.assert_allclose(values, [0.5, 1.1 / 3, 0.42, 0.42], rtol=1e-5)


def test_without_entropy_soft_attention_is_the_marginal():
    """If p(z) is one-hot, E[f(z)] = f(E[z]), so soft attention is the marginal (Deng et al. 2018, section 2.2)."""
    words = keras_vattn.TokenLogLikelihood(3, kernel_initializer="identity")
    value = np.random.default_rng(1).normal(size=(1, 3, 3)).astype("float32")
    logits, word, values = np.log(np.float32([[[1.0, 1e-30, 1e-30]]])), tf.fill((1, 1), 2), []
    for pair in ("marginal", "soft"):
        latent = keras_vattn.CategoricalAttention(objective=pair)(tf.zeros((1, 1, 2)), value, logits=logits)
        log_likelihood = words(latent["candidates"], word)
        bound = keras_vattn.LatentLogLikelihood(pair)(log_likelihood, latent["log_prior"], latent["log_posterior"])
        values.append(ops.exp(bound))
    np.testing.assert_allclose(*values, atol=1e-6)


def test_rows_without_a_valid_key_have_the_likelihood_of_the_empty_context():
    log_zero = tf.fill((1, 1, 3), np.float64(keras_vattn.latent_alignment.log_probabilities.LOG_ZERO))
    log_likelihood = tf.fill((1, 1, 3), tf.constant(-2.5, tf.float64))
    for value in (
        estimators.marginal(log_likelihood, log_zero),
        estimators.expectation(log_likelihood, log_zero),
        estimators.score_function(log_likelihood, log_zero, -2.5),
        estimators.importance_weighted(log_likelihood, log_zero, log_zero),
        estimators.wake_sleep(log_likelihood, log_zero, log_zero),
    ):
        np.testing.assert_allclose(value, [[-2.5]])
