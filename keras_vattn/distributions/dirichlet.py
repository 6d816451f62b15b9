import tensorflow as tf
from keras import ops

from keras_vattn import random
from keras_vattn.distributions.row_distribution import RowDistribution
from keras_vattn.support import tfp
from keras_vattn.support.gradients import custom_gradient
from keras_vattn.support.special import (
    bounded_exp,
    gap_of_expm1,
    log_gamma_bent,
    log_gamma_curvature,
    log_gamma_slope,
    log_ratio,
    scaled_trigamma,
)


def dirichlet_divergence(concentration, prior_concentration, keys):
    """Return KL(Dirichlet(a) || Dirichlet(b)) of each row, in nats, float32 (B, T), at least 0.

    The usual formula would subtract large, almost equal terms. In float32, its error would be about 1 nat for 64
    concentrations near 1e4. If one key has nearly all the concentration of a row, the gradient with respect to b has
    only two or three correct digits.

    Formula:
        "KL" = sum_s b_s "gap"(log((a_s B) / (b_s A))) + sum_s D(a_s, b_s) - D(A, B)
        A = sum_s a_s, quad B = sum_s b_s
        D(a, b) = R(log b) - R(log a) - (b/a - 1) R'(log a)
        R(log x) = log Gamma(x) - x log x + x, quad "gap"(x) = exp(x) - 1 - x

    Args:
        concentration: a, positive, (B, T, S).
        prior_concentration: b, positive, with a shape that broadcasts to the shape of a.
        keys: A `keras_vattn.Keys`, which defines the valid keys of each row.
    """
    a, b_narrow = ops.cast(concentration, "float32"), ops.cast(prior_concentration, "float32")
    b = b_narrow + ops.zeros_like(a)
    a_total, b_total = _total(a, keys), _total(b, keys)
    total_relative = keys.sum(b - a) / a_total
    total_ratio = log_ratio(a_total, b_total, total_relative)
    prior = (log_gamma_bent(b_narrow), log_gamma_slope(b_narrow) / b_narrow)
    row = (
        total_relative,
        b_total / a_total,
        total_ratio,
        scaled_trigamma(a_total) * total_relative / a_total,
        total_ratio + log_gamma_slope(b_total) / b_total - log_gamma_slope(a_total) / a_total,
    )
    row = tuple(keys.spread(x) for x in row)
    divergence = keys.sum(_entries(a, b, prior, row))
    # Without `stop_gradient`, the gradient of D(A, B) would count twice: the gradient of `_entries` includes it.
    divergence -= tf.stop_gradient(_remainder(a_total, log_gamma_bent(b_total), total_relative, total_ratio))
    return ops.maximum(divergence, 0.0)


@custom_gradient
def _entries(a, b, prior, row):
    """Return one term of the KL for each key, with the gradient of the whole KL with respect to a and b."""
    b_bent, b_slope = prior
    total_relative, total_quotient, total_ratio, a_row, b_row = row
    relative, quotient = (b - a) / a, b / a
    ratio = log_ratio(a, b, relative)
    leading = b * gap_of_expm1(total_quotient / quotient - 1.0, total_ratio - ratio)

    def gradient(upstream):
        near = ops.abs(relative) < 0.5  # where B / A - b / a would lose precision
        difference = ops.where(near, total_relative - relative, total_quotient - quotient)
        by_a = difference + a_row - scaled_trigamma(a) * relative / a
        by_b = ratio + b_slope - log_gamma_slope(a) / a - b_row
        return upstream * by_a, upstream * by_b, (None,) * len(prior), (None,) * len(row)

    return leading + _remainder(a, b_bent, relative, ratio), gradient


def _remainder(a, b_bent, relative, ratio):
    """Return D(a, b) of `dirichlet_divergence`, from relative = b / a - 1 and ratio = log(b / a)."""
    slope = log_gamma_slope(a)
    # Where b is near a, `far_value` would lose precision. `near_value` has a relative error of 0.002 ratio^2.
    near = ops.abs(ratio) < 0.15
    small = ops.where(near, ratio, 0.0)
    near_value = 0.5 * ops.square(small) * log_gamma_curvature(a * ops.exp(small / 3.0))
    far_value = b_bent - log_gamma_bent(a) - (slope + 0.5) * ratio
    return ops.where(near, near_value, far_value) - slope * gap_of_expm1(relative, ratio)


def _total(concentration, keys):
    total = keys.sum(concentration)
    return ops.where(total > 0.0, total, ops.ones_like(total))


class Dirichlet(RowDistribution):
    """Dirichlet distribution over the valid keys of each row.

    A masked position has weight 0 in every draw and is not part of the density. Draws stay finite for small alpha.

    Formula:
        p(w) = Gamma(sum_s alpha_s) prod_s (w_s^(alpha_s - 1)) / (Gamma(alpha_s)), quad alpha_s = "concentration"_s
        bb E[w_s] = alpha_s / (sum_(s') alpha_(s'))

    Args:
        concentration: alpha, positive, (..., S). Leading axes of length 1 broadcast.
        keys: A `keras_vattn.Keys`, which defines the valid keys of each row.

    Example:

    >>> keys = keras_vattn.DenseKeys()
    >>> q = keras_vattn.distributions.Dirichlet(keras.ops.ones((3, 4)), keys)
    >>> q.mean()[0]
    <tf.Tensor: shape=(4,), dtype=float32, numpy=array([0.25, 0.25, 0.25, 0.25], dtype=float32)>
    """

    on_simplex = True

    def __init__(self, concentration, keys):
        parameters = dict(locals())
        super().__init__(concentration, keys, parameters)
        self.concentration = self.like

    def log_mean(self):
        return self.keys.log_softmax(ops.log(self.concentration))

    def relative_variance(self):
        mean = self._mean()
        total = self.keys.spread(_total(self.concentration, self.keys)) + 1.0
        return ops.divide_no_nan(1.0 - mean, mean * total)

    def log_sample(self, shape, seed):
        return self.keys.log_softmax(log_gamma_sample(ops.log(self.concentration), shape, seed))

    def log_density(self, log_value):
        a, count = self.concentration, ops.maximum(self.keys.count(log_value), 1.0)
        row_term = self.keys.spread(tf.math.lgamma(_total(a, self.keys)) / count)
        return a * log_value - tf.math.lgamma(a) + row_term


def log_gamma_sample(log_concentration, shape, seed):
    """Return draws of log S with the given shape, where S ~ Gamma(exp(log_concentration), 1)."""
    # A draw from Gamma(a) would underflow for a small a. A draw from Gamma(a + 1) does not. The product of this draw
    # and u^(1/a), with a uniform u, is a draw from Gamma(a).
    first, second = tfp.split_seed(seed)
    concentration = tf.broadcast_to(bounded_exp(log_concentration), shape)
    log_gamma = random.log_gamma(concentration + 1.0, random.gamma_noise(shape, first))
    return log_gamma + ops.log(random.uniform(shape, second)) / concentration


@tfp.RegisterKL(Dirichlet, Dirichlet)
def _to_dirichlet(q, p, name=None):
    return dirichlet_divergence(q.concentration, p.concentration, q.keys)
