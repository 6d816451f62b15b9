import math

from keras import ops

from keras_vattn import random
from keras_vattn.distributions.row_distribution import RowDistribution, relaxed_density
from keras_vattn.support import tfp
from keras_vattn.support.special import bounded_exp, bounded_exponential_gap

EULER = 0.5772156649015329


class Weibull(RowDistribution):
    """Weibull distribution of the unnormalised weights S of each row, with the parameter log E[S].

    The formula gives the KL(q || p) of two `Weibull` distributions. In the formula, gamma is Euler's constant. `Gamma`
    documents the KL to a Gamma.

    Formula:
        S_s ~ "Weibull"(k, lambda_s), quad lambda_s = (bb E[S_s]) / (Gamma(1 + 1/k)), quad log bb E[S_s] = "log_mean"_s
        r = k_p / k_q, quad d_s = log lambda_(p,s) - log lambda_(q,s)
        "KL"(q || p) = sum_s (Gamma(1 + r) exp(-k_p d_s) - 1 + k_p d_s - log r - gamma (1 - r))

    Args:
        k: Shape, a positive number.
        log_mean: log E[S], (..., S), or (..., E) with `SegmentKeys`.
        keys: A `keras_vattn.Keys`, which defines the valid keys of each row.
        sums_to_one: Whether E[S] sums to one over the valid keys of each row. `True` makes the KL to a Gamma faster to
            compute, but wrong if the sum is not one. Defaults to `False`.

    Example:

    >>> keys = keras_vattn.DenseKeys()
    >>> q = keras_vattn.distributions.Weibull(2.0, keras.ops.zeros((3, 4)), keys)
    >>> q.sample(seed=1).shape, q.log_prob(keras.ops.ones((3, 4))).shape
    (TensorShape([3, 4]), TensorShape([3]))
    """

    def __init__(self, k, log_mean, keys, sums_to_one=False):
        parameters = dict(locals())
        self.k, self.sums_to_one = k, sums_to_one
        super().__init__(log_mean, keys, parameters)

    @property
    def log_gamma(self):
        """log Gamma(1 + 1/k), the difference log E[S] - log lambda."""
        return math.lgamma(1.0 + 1.0 / self.k)

    @property
    def log_scale(self):
        """log lambda of each weight."""
        return self.like - self.log_gamma

    def normalized(self):
        return NormalizedWeibull(self.k, self.like, self.keys)

    def log_mean(self):
        return self.like

    def relative_variance(self):
        return math.exp(math.lgamma(1.0 + 2.0 / self.k) - 2.0 * self.log_gamma) - 1.0

    def log_density(self, log_value):
        log_draw = self.k * (log_value - self.log_scale)
        return math.log(self.k) + log_draw - bounded_exp(log_draw)

    def log_draw(self, noise):
        """Return log S for the noise of a `keras_vattn.Weibull` alignment with the same k."""
        return self.log_scale + noise

    def log_sample(self, shape, seed):
        return self.log_draw(log_noise(self.k, shape, seed))


class NormalizedWeibull(RowDistribution):
    """Distribution of normalised Weibull weights, on the simplex.

    Scaling all lambda of a row has no effect. In the formula, n is the number of valid keys of a row.

    The mean and the KL(q || p) have no closed form. Alignments estimate the KL as log q(w) - log p(w) at a draw w. If q
    and p are equal, the estimate is 0 at every draw. If `log_scale` of q and p differ by d, the KL grows at most
    linearly in k d. The KL of the unnormalised weights S is never smaller, and can grow exponentially in k d.

    Formula:
        w_s = S_s / (sum_(s') S_(s')), quad S_s ~ "Weibull"(k, lambda_s), quad log lambda_s = "log_scale"_s
        p(w) = (n - 1)! k^(n - 1) (prod_s lambda_s^(-k) w_s^(k - 1)) / (sum_s (w_s / lambda_s)^k)^n

    Args:
        k: Shape, a positive number.
        log_scale: log lambda up to a constant per row, (..., S). Leading axes of length 1 broadcast.
        keys: A `keras_vattn.Keys`, which defines the valid keys of each row.

    Example:

    >>> keys = keras_vattn.DenseKeys()
    >>> q = keras_vattn.distributions.NormalizedWeibull(2.0, keras.ops.zeros((3, 4)), keys)
    >>> weights = q.sample(seed=1)
    >>> weights.shape, q.log_prob(weights).shape, round(float(keras.ops.sum(weights[0])), 5)
    (TensorShape([3, 4]), TensorShape([3]), 1.0)
    """

    on_simplex = True

    def __init__(self, k, log_scale, keys):
        parameters = dict(locals())
        super().__init__(log_scale, keys, parameters)
        self.k, self.log_scale = k, self.like

    def log_density(self, log_value):
        return relaxed_density(self.k * (log_value - self.log_scale), self.k, self.keys)

    def log_draw(self, noise):
        """Return the log weights for the noise of a `keras_vattn.Weibull` alignment with the same k."""
        return self.keys.log_softmax(self.log_scale + noise)

    def log_sample(self, shape, seed):
        return self.log_draw(log_noise(self.k, shape, seed))


def log_noise(k, shape, seed):
    """Return finite draws of log S for a Weibull with shape k and scale 1."""
    return ops.log(-ops.log1p(-random.uniform(shape, seed))) / k


@tfp.RegisterKL(Weibull, Weibull)
def _to_weibull(q, p, name=None):
    ratio = p.k / q.k
    log_gamma = math.lgamma(1.0 + ratio)
    constant = log_gamma - math.log(ratio) - EULER * (1.0 - ratio)
    distance = p.k * (q.log_scale - p.log_scale) + log_gamma
    return q.keys.sum(bounded_exponential_gap(distance) + constant)
