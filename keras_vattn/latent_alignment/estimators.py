"""Values and gradients of the objectives of a latent alignment, from the log-likelihoods of its candidates.

All arrays are float32, (B, T, K): `log_likelihood` is log p(y | z_k), `log_prior` log p(z_k), `log_posterior` log
q(z_k). All results are (B, T), in nats. A gradient that is not that of the value rides on it as a term whose own value
is 0.
"""

from keras import ops

from keras_vattn.latent_alignment.log_probabilities import without_empty_rows


def marginal(log_likelihood, log_prior):
    """Return log sum_k p(z_k) p(y | z_k), for k over all z or over the ones that K-max keeps."""
    return ops.logsumexp(without_empty_rows(log_prior) + log_likelihood, axis=-1)


def expectation(log_likelihood, log_probability):
    """Return sum_k exp(log_probability_k) log p(y | z_k), for k over all z."""
    return ops.sum(ops.exp(without_empty_rows(log_probability)) * log_likelihood, axis=-1)


def score_function(log_likelihood, log_probability, baseline):
    """Return 1/K sum_k log p(y | z_k) for draws z_k, with an unbiased gradient of its expectation.

    The gradient is that of log p(y | z_k), and (log p(y | z_k) - baseline_k) times that of the log probability that the
    draw came from (Deng et al. 2018, eq. 1). Reward and baseline are constants in it.

    Args:
        log_likelihood: Of the draws.
        log_probability: Of the draws under the distribution they came from.
        baseline: What broadcasts to (B, T, K), its entry k independent of z_k.
    """
    reward = ops.stop_gradient(log_likelihood - baseline)
    return ops.mean(log_likelihood + reward * gradient_of(log_probability), axis=-1)


def importance_weighted(log_likelihood, log_prior, log_posterior):
    """Return L = log 1/K sum_k w_k, w_k = p(z_k) p(y | z_k) / q(z_k), with an unbiased gradient of its expectation.

    The gradient is that of L itself, and sum_k (L - b_k) times that of log q(z_k) with the leave-one-out baselines b_k
    of VIMCO (Mnih and Rezende 2016).
    """
    log_weights = _log_weights(log_likelihood, log_prior, log_posterior)
    value = _log_mean(log_weights)
    reward = ops.stop_gradient(value[..., None] - leave_one_out(log_weights))
    return value + ops.sum(reward * gradient_of(log_posterior), axis=-1)


def leave_one_out(log_weights):
    """Return b_k = log 1/K (sum_{j != k} w_j + w'_k), w'_k the geometric mean of the other weights; 0 where K is 1.

    The k-th entry does not depend on the k-th weight.
    """
    count = log_weights.shape[-1]
    if count == 1:
        return ops.zeros_like(log_weights)
    others = (ops.sum(log_weights, axis=-1, keepdims=True) - log_weights) / (count - 1)
    own = ops.eye(count, dtype="bool")
    return _log_mean(ops.where(own, others[..., None], log_weights[..., None, :]))


def wake_sleep(log_likelihood, log_prior, log_posterior):
    """Return log 1/K sum_k w_k as `importance_weighted` does, with the gradient of reweighted wake-sleep.

    The gradient is sum_k v_k times that of log p(y | z_k) + log p(z_k) + log q(z_k), where v_k = w_k / sum_j w_j is a
    constant (Ba et al. 2015, without baselines; Bornschein and Bengio 2015): the likelihood is learnt as under the
    importance-weighted bound, and q towards the posterior of the alignment.
    """
    log_weights = ops.stop_gradient(_log_weights(log_likelihood, log_prior, log_posterior))
    learnt = gradient_of(log_likelihood) + gradient_of(log_prior) + gradient_of(log_posterior)
    shares = ops.exp(log_weights - ops.logsumexp(log_weights, axis=-1, keepdims=True))
    return _log_mean(log_weights) + ops.sum(shares * learnt, axis=-1)


def _log_weights(log_likelihood, log_prior, log_posterior):
    # In this order: the two log probabilities of a draw in a row without a valid key are huge, and cancel.
    return log_likelihood + (log_prior - log_posterior)


def _log_mean(x):
    return ops.logsumexp(x, axis=-1) - ops.log(ops.cast(ops.shape(x)[-1], x.dtype))


def gradient_of(x):
    """Return zeros with the gradient of x."""
    return x - ops.stop_gradient(x)
