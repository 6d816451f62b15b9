"""Compute the latent-alignment objectives and their gradients from the log-likelihoods of the candidates.

All inputs are float32 (B, T, K): `log_likelihood` is log p(y | z_k), `log_prior` is log p(z_k), `log_posterior` is log
q(z_k). All results are (B, T), in nats. Some estimators need a gradient that differs from the derivative of the result.
These estimators add x - stop_gradient(x), which has the value 0 and the gradient of x.
"""

from keras import ops

from keras_vattn.latent_alignment.log_probabilities import without_empty_rows


def marginal(log_likelihood, log_prior):
    """Return the log-likelihood of a word, summed over the candidates.

    Formula:
        "result" = log (sum_k p(z_k) p(y | z_k))
    """
    return ops.logsumexp(without_empty_rows(log_prior) + log_likelihood, axis=-1)


def expectation(log_likelihood, log_probability):
    """Return the expected log-likelihood of a word, an exact sum over all positions z_k.

    Formula:
        "result" = sum_k exp("log_probability"_k) log p(y | z_k)
    """
    return ops.sum(ops.exp(without_empty_rows(log_probability)) * log_likelihood, axis=-1)


def score_function(log_likelihood, log_probability, baseline):
    """Return the mean log-likelihood over samples z_k from q, with an unbiased gradient.

    See Deng et al. 2018, eq. 1. In the formula, sg stops the gradient.

    Formula:
        "result" = 1/K sum_k (log p(y | z_k) + "sg"(log p(y | z_k) - b_k) (log q(z_k) - "sg"(log q(z_k))))

    Args:
        log_likelihood: log p(y | z_k) of the samples.
        log_probability: log q(z_k) of the samples.
        baseline: b, broadcastable to (B, T, K). If b_k depends on z_k, the gradient is biased.
    """
    reward = ops.stop_gradient(log_likelihood - baseline)
    return ops.mean(log_likelihood + reward * gradient_of(log_probability), axis=-1)


def importance_weighted(log_likelihood, log_prior, log_posterior):
    """Return the importance-weighted bound of Burda et al. 2016, with an unbiased gradient estimate.

    In the formula, sg stops the gradient, and b_k is a baseline of `leave_one_out`.

    Formula:
        "result" = L + sum_k "sg"(L - b_k) (log q(z_k) - "sg"(log q(z_k)))
        L = log (1/K sum_k omega_k), quad omega_k = (p(z_k) p(y | z_k)) / (q(z_k))
    """
    log_weights = _log_weights(log_likelihood, log_prior, log_posterior)
    value = _log_mean(log_weights)
    reward = ops.stop_gradient(value[..., None] - leave_one_out(log_weights))
    return value + ops.sum(reward * gradient_of(log_posterior), axis=-1)


def leave_one_out(log_weights):
    """Return the VIMCO baselines b_k (Mnih and Rezende 2016) from log omega (..., K). If K is 1, b is 0.

    Formula:
        b_k = log (1/K (sum_(j != k) omega_j + (prod_(j != k) omega_j)^(1/(K-1))))
    """
    count = log_weights.shape[-1]
    if count == 1:
        return ops.zeros_like(log_weights)
    mean_of_others = (ops.sum(log_weights, axis=-1, keepdims=True) - log_weights) / (count - 1)
    diagonal = ops.eye(count, dtype="bool")
    return _log_mean(ops.where(diagonal, mean_of_others[..., None], log_weights[..., None, :]))


def wake_sleep(log_likelihood, log_prior, log_posterior):
    """Return the value of `importance_weighted`, with the gradient of reweighted wake-sleep.

    See Bornschein and Bengio 2015. This function omits the baselines of Ba et al. 2015. The formula of
    `importance_weighted` defines omega.

    Formula:
        "result" = log (1/K sum_k omega_k)
        "gradient" = sum_k omega_k / (sum_j omega_j) grad (log p(y | z_k) + log p(z_k) + log q(z_k))
    """
    log_weights = ops.stop_gradient(_log_weights(log_likelihood, log_prior, log_posterior))
    gradients = gradient_of(log_likelihood) + gradient_of(log_prior) + gradient_of(log_posterior)
    normalized_weights = ops.exp(log_weights - ops.logsumexp(log_weights, axis=-1, keepdims=True))
    return _log_mean(log_weights) + ops.sum(normalized_weights * gradients, axis=-1)


def _log_weights(log_likelihood, log_prior, log_posterior):
    # Without the parentheses, the likelihood would be lost in rounding at masked keys.
    return log_likelihood + (log_prior - log_posterior)


def _log_mean(x):
    return ops.logsumexp(x, axis=-1) - ops.log(ops.cast(ops.shape(x)[-1], x.dtype))


def gradient_of(x):
    """Return x - stop_gradient(x), which has the value 0 and the gradient of x."""
    return x - ops.stop_gradient(x)
