"""Compute the latent-alignment objectives and their gradients from the log-likelihoods of the candidates.

All inputs are float32 (B, T, K): `log_likelihood` is log p(y | z_k), `log_prior` is log p(z_k), `log_posterior` is log
q(z_k). All results are (B, T), in nats. If the gradient of an estimator is not the derivative of its value, the
estimator adds a term of value 0 with the missing gradient.
"""

from keras import ops

from keras_vattn.latent_alignment.log_probabilities import without_empty_rows


def marginal(log_likelihood, log_prior):
    """Return the log-likelihood of a word. The likelihood is summed over all positions, or the K most probable ones.

    Formula:
        "result" = log (sum_k p(z_k) p(y | z_k))
    """
    return ops.logsumexp(without_empty_rows(log_prior) + log_likelihood, axis=-1)


def expectation(log_likelihood, log_probability):
    """Return the expected log-likelihood of a word. The expectation is an exact sum over all positions z_k.

    Formula:
        "result" = sum_k exp("log_probability"_k) log p(y | z_k)
    """
    return ops.sum(ops.exp(without_empty_rows(log_probability)) * log_likelihood, axis=-1)


def score_function(log_likelihood, log_probability, baseline):
    """Return the mean log-likelihood over samples z_k, with an unbiased gradient of the expected log-likelihood.

    The z_k are samples from q. In the formula, sg stops the gradient, so reward and baseline are constants (Deng et al.
    2018, eq. 1).

    Formula:
        "result" = 1/K sum_k (log p(y | z_k) + "sg"(log p(y | z_k) - b_k) (log q(z_k) - "sg"(log q(z_k))))

    Args:
        log_likelihood: log p(y | z_k) of the samples.
        log_probability: log q(z_k) of the samples.
        baseline: b, broadcastable to (B, T, K). b_k must not depend on z_k.
    """
    reward = ops.stop_gradient(log_likelihood - baseline)
    return ops.mean(log_likelihood + reward * gradient_of(log_probability), axis=-1)


def importance_weighted(log_likelihood, log_prior, log_posterior):
    """Return the importance-weighted bound of Burda et al. 2016, with an unbiased gradient estimate.

    The b_k are the leave-one-out baselines of VIMCO (Mnih and Rezende 2016); sg stops the gradient.

    Formula:
        "result" = L + sum_k "sg"(L - b_k) (log q(z_k) - "sg"(log q(z_k)))
        L = log (1/K sum_k omega_k), quad omega_k = (p(z_k) p(y | z_k)) / (q(z_k))
    """
    log_weights = _log_weights(log_likelihood, log_prior, log_posterior)
    value = _log_mean(log_weights)
    reward = ops.stop_gradient(value[..., None] - leave_one_out(log_weights))
    return value + ops.sum(reward * gradient_of(log_posterior), axis=-1)


def leave_one_out(log_weights):
    """Return the baselines b_k of VIMCO from log omega (..., K). b_k does not depend on omega_k. If K is 1, b is 0.

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

    Bornschein and Bengio 2015 propose the method; this function omits the baselines of Ba et al. 2015. Omega and the
    gradients of p(y | z) and p(z) are as in `importance_weighted`. The gradient of q moves q towards p(z | y).

    Formula:
        "result" = log (1/K sum_k omega_k)
        "gradient" = sum_k omega_k / (sum_j omega_j) grad (log p(y | z_k) + log p(z_k) + log q(z_k))
    """
    log_weights = ops.stop_gradient(_log_weights(log_likelihood, log_prior, log_posterior))
    gradients = gradient_of(log_likelihood) + gradient_of(log_prior) + gradient_of(log_posterior)
    normalized_weights = ops.exp(log_weights - ops.logsumexp(log_weights, axis=-1, keepdims=True))
    return _log_mean(log_weights) + ops.sum(normalized_weights * gradients, axis=-1)


def _log_weights(log_likelihood, log_prior, log_posterior):
    # Subtract first, because in a row without a valid key both log probabilities are -1e30 and must cancel.
    return log_likelihood + (log_prior - log_posterior)


def _log_mean(x):
    return ops.logsumexp(x, axis=-1) - ops.log(ops.cast(ops.shape(x)[-1], x.dtype))


def gradient_of(x):
    """Return x - stop_gradient(x), which has the value 0 and the gradient of x."""
    return x - ops.stop_gradient(x)
