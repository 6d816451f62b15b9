import math

import tensorflow as tf
from keras import ops

from keras_vattn.distributions.dirichlet import Dirichlet, log_gamma_sample
from keras_vattn.distributions.row_distribution import RowDistribution
from keras_vattn.distributions.weibull import EULER, Weibull
from keras_vattn.support import tfp
from keras_vattn.support.special import bounded_exp, log_gamma_remainder, scaled_exponential_gap

# Above this rate, `_divergence_from_products` would lose precision.
_LARGEST_LOG_RATE = math.log(1e2)


class Gamma(RowDistribution):
    """Gamma distribution of the unnormalised weights S of each row.

    The formula gives the KL of a `Weibull` q to this distribution p (Fan et al. 2020, section 3.2). In the formula,
    gamma is Euler's constant. The KL is finite for beta from 1e-15 to 1e15.

    Formula:
        S_s ~ "Gamma"(alpha_s, beta), quad alpha_s = exp("log_concentration"_s), quad beta = exp("log_rate")
        "KL"("Weibull"(k, lambda) || p) = sum_s (A_s + beta lambda_s Gamma(1 + 1/k) + log k - gamma - 1)
        A_s = gamma alpha_s / k - alpha_s log lambda_s - alpha_s log beta + log Gamma(alpha_s)

    Args:
        log_concentration: log alpha, (..., S). Leading axes of length 1 broadcast.
        log_rate: log beta, a number.
        keys: A `keras_vattn.Keys`, which defines the valid keys of each row.
        log_total: Function from the number of valid keys of a row (a tensor, at least 1) to the logarithm of the sum of
            E[S] over these keys. `None` if the number of keys does not determine the sum. Defaults to `None`.

    Example:

    >>> keys = keras_vattn.DenseKeys()
    >>> p = keras_vattn.distributions.Gamma(keras.ops.zeros((3, 4)), 0.0, keys)
    >>> p.log_prob(keras.ops.ones((3, 4)))[0]
    <tf.Tensor: shape=(), dtype=float32, numpy=-4.0>
    """

    def __init__(self, log_concentration, log_rate, keys, log_total=None):
        parameters = dict(locals())
        super().__init__(log_concentration, keys, parameters)
        self.log_concentration, self.log_rate, self.log_total = self.like, log_rate, log_total

    def normalized(self):
        # Without `clip`, a concentration could become 0 or infinite in float32.
        return Dirichlet(ops.exp(ops.clip(self.log_concentration, -80.0, 60.0)), self.keys)

    def log_mean(self):
        return self.log_concentration - self.log_rate

    def relative_variance(self):
        return ops.exp(-self.log_concentration)

    def log_density(self, log_value):
        gap = scaled_exponential_gap(self.log_concentration, log_value - self.log_mean())
        return -gap - log_gamma_remainder(self.log_concentration)

    def log_sample(self, shape, seed):
        return log_gamma_sample(self.log_concentration, shape, seed) - self.log_rate


def divergence_at_equal_means(k, log_concentration):
    """Return KL(Weibull || Gamma) of each weight, for equal means."""
    constant, slope = math.log(k) - EULER - 1.0, EULER / k + math.lgamma(1.0 + 1.0 / k)
    return log_gamma_remainder(log_concentration) + bounded_exp(log_concentration) * slope + constant


@tfp.RegisterKL(Weibull, Gamma)
def _weibull_to_gamma(q, p, name=None):
    if q.sums_to_one and p.log_rate < _LARGEST_LOG_RATE:
        return _divergence_from_products(q, p)
    gap = scaled_exponential_gap(p.log_concentration, q.log_mean() - p.log_mean())
    return q.keys.sum(gap + divergence_at_equal_means(q.k, p.log_concentration))


def _divergence_from_products(q, p):
    keys, log_mean = q.keys, q.log_mean()
    log_alpha = keys.zero_masked(p.log_concentration)
    alpha = ops.exp(log_alpha)
    # lgamma(alpha) would be infinite if alpha underflows in float32.
    log_gamma = tf.math.lgamma(alpha + 1.0) - log_alpha
    slope = EULER / q.k + q.log_gamma - p.log_rate
    if alpha.shape == log_mean.shape:
        entry_terms = keys.sum(log_gamma + alpha * (slope - log_mean))
    else:
        entry_terms = keys.sum(log_gamma + alpha * slope) - keys.sum(alpha * log_mean)
    constant, rate = math.log(q.k) - EULER - 1.0, math.exp(p.log_rate)
    # E[S] sums to 1, or to 0 in a row without a valid key.
    row_term = keys.of_count(lambda count: count * constant + rate * ops.minimum(count, 1.0), log_mean)
    return entry_terms + row_term
