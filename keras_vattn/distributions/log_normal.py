import math

from keras import ops

from keras_vattn import random
from keras_vattn.distributions.row_distribution import RowDistribution
from keras_vattn.support import tfp
from keras_vattn.support.special import bounded_square


class LogNormal(RowDistribution):
    """Lognormal distribution of the unnormalised weights S of each row.

    If `scale` is below 1e-9, the density and the KL are inexact for distances above 1e14 standard deviations: the
    distance grows only logarithmically, which prevents an overflow in float32.

    Formula:
        log S_s ~ "Normal"(mu_s, sigma^2), quad mu_s = "loc"_s, quad sigma = "scale"
        "KL"(q || p) = sum_s (log(sigma_p / sigma_q) + (sigma_q^2 + (mu_(q,s) - mu_(p,s))^2) / (2 sigma_p^2) - 1/2)

    Args:
        loc: Mean of log S, (..., S). Leading axes of length 1 broadcast.
        scale: Standard deviation of log S, a positive number.
        keys: A `keras_vattn.Keys`, which defines the valid keys of each row.

    Example:

    >>> keys = keras_vattn.DenseKeys()
    >>> q = keras_vattn.distributions.LogNormal(keras.ops.zeros((3, 4)), 0.5, keys)
    >>> float(q.mean()[0, 0]) == float(keras.ops.exp(0.125))
    True
    """

    def __init__(self, loc, scale, keys):
        parameters = dict(locals())
        super().__init__(loc, keys, parameters)
        self.loc, self.scale = self.like, scale

    def normalized(self):
        return LogisticNormal(self.loc, self.scale, self.keys)

    def log_mean(self):
        return self.loc + 0.5 * self.scale**2

    def relative_variance(self):
        return math.expm1(self.scale**2)

    def log_density(self, log_value):
        distance = _square(self.scale)((log_value - self.loc) / self.scale)
        return -0.5 * distance - math.log(self.scale) - 0.5 * math.log(2.0 * math.pi)

    def log_draw(self, normal):
        """Return log S for one standard normal number per weight."""
        return self.loc + self.scale * normal

    def log_sample(self, shape, seed):
        return self.log_draw(random.normal(shape, seed))


class LogisticNormal(RowDistribution):
    """Distribution of normalised lognormal weights, on the simplex.

    Adding a constant to all means mu of a row has no effect. The mean of the distribution has no closed form. In the
    formula, n is the number of valid keys of a row, and a bar denotes the mean over these keys.

    Formula:
        w_s = "softmax"_s(mu_s + sigma epsilon_s), quad mu_s = "loc"_s, quad sigma = "scale"
        p(log w) = (2 pi sigma^2)^((1 - n)/2) n^(-1/2) exp(- sum_s (d_s - bar(d))^2 / (2 sigma^2))
        d_s = log w_s - mu_s
        "KL"(q || p) = (n - 1) (log(sigma_p / sigma_q) + sigma_q^2 / (2 sigma_p^2) - 1/2) + R
        R = sum_s (e_s - bar(e))^2 / (2 sigma_p^2), quad e_s = mu_(q,s) - mu_(p,s)

    Args:
        loc: The mean mu of each log weight before normalisation, (..., S). Leading axes of length 1 broadcast.
        scale: The standard deviation sigma of these log weights, a positive number.
        keys: A `keras_vattn.Keys`, which defines the valid keys of each row.

    Example:

    >>> keys, zeros = keras_vattn.DenseKeys(), keras.ops.zeros((3, 4))
    >>> q = keras_vattn.distributions.LogisticNormal(zeros, 0.5, keys)
    >>> p = keras_vattn.distributions.LogisticNormal(zeros + 7.0, 0.5, keys)
    >>> q.kl_divergence(p)
    <tf.Tensor: shape=(3,), dtype=float32, numpy=array([0., 0., 0.], dtype=float32)>
    """

    on_simplex = True

    def __init__(self, loc, scale, keys):
        parameters = dict(locals())
        super().__init__(loc, keys, parameters)
        self.loc, self.scale = self.like, scale

    def log_density(self, log_value):
        square = _square(self.scale)(_centred(log_value - self.loc, self.keys) / self.scale)
        half = 0.5 * math.log(2.0 * math.pi * self.scale**2)
        count = ops.maximum(self.keys.count(square), 1.0)
        return -0.5 * square - half + self.keys.spread((half - 0.5 * ops.log(count)) / count)

    def log_draw(self, normal):
        """Return the log weights for one standard normal number per weight."""
        return self.keys.log_softmax(self.loc + self.scale * normal)

    def log_sample(self, shape, seed):
        return self.log_draw(random.normal(shape, seed))


@tfp.RegisterKL(LogNormal, LogNormal)
def _to_log_normal(q, p, name=None):
    square = _square(p.scale)((q.loc - p.loc) / p.scale)
    constant = math.log(p.scale / q.scale) + 0.5 * ((q.scale / p.scale) ** 2 - 1.0)
    return 0.5 * q.keys.sum(square) + q.keys.of_count(lambda count: constant * count, square)


@tfp.RegisterKL(LogisticNormal, LogisticNormal)
def _to_logistic_normal(q, p, name=None):
    square = _square(p.scale)(_centred(q.loc - p.loc, q.keys) / p.scale)
    ratio = q.scale / p.scale
    row_term = (0.5 * (ratio**2 - 1.0) - math.log(ratio)) * ops.maximum(q.keys.count(square) - 1.0, 0.0)
    return 0.5 * q.keys.sum(square) + row_term


def _square(scale):
    # `ops.square` is faster, but could overflow in float32 if the scale is below 1e-9.
    return bounded_square if scale < 1e-9 else ops.square


def _centred(x, keys):
    """Subtract the mean of each row from x."""
    x = keys.zero_masked(x)
    return keys.zero_masked(x - keys.spread(keys.sum(x) / ops.maximum(keys.count(x), 1.0)))
