import math

from keras import ops

from keras_vattn.support import tfp
from keras_vattn.support.gradients import custom_gradient
from keras_vattn.support.special import exponential_gap

# With a larger limit, draws could overflow in float16.
MAX_LOG_SCALE = 8.0


class Normal(tfp.Normal):
    """Normal distribution in float32, with log sigma as a parameter instead of sigma. The KL is elementwise.

    Formula:
        x ~ "Normal"(mu, sigma^2), quad mu = "loc", quad log sigma = "log_scale", quad r = log(sigma_q / sigma_p)
        "KL"(q || p) = 1/2 ((mu_q - mu_p)^2 / sigma_p^2 + exp(2 r) - 1 - 2 r)

    Args:
        loc: Mean, of any shape and dtype.
        log_scale: log sigma, float32, from -8 to 8, or `None` for 0. Defaults to `None`.

    Example:

    >>> means = keras.ops.ones((2, 3)), keras.ops.full((2, 3), 3.0)
    >>> q, p = map(keras_vattn.distributions.Normal, means)
    >>> q.kl_divergence(p)[0, 0]
    <tf.Tensor: shape=(), dtype=float32, numpy=2.0>
    """

    def __init__(self, loc, log_scale=None):
        self.log_scale = log_scale
        super().__init__(ops.cast(loc, "float32"), 1.0 if log_scale is None else ops.exp(log_scale))
        self._parameters = {"loc": loc, "log_scale": log_scale}

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return {"loc": tfp.ParameterProperties(), "log_scale": tfp.ParameterProperties()}

    def _log_prob(self, value):
        distance, log_scale = value - self.loc, 0.0
        if self.log_scale is not None:
            log_scale = self.log_scale
            distance = distance * ops.exp(-log_scale)
        return -0.5 * ops.square(distance) - log_scale - 0.5 * math.log(2.0 * math.pi)


def clip_log_scale(log_scale):
    """Return log sigma, clipped to [-8, 8], in float32. The gradient is that of an unclipped log sigma."""
    return _clipped(ops.cast(log_scale, "float32"))


@custom_gradient
def _clipped(log_scale):
    return ops.clip(log_scale, -MAX_LOG_SCALE, MAX_LOG_SCALE), lambda upstream: upstream


def gaussian_sample(mean, log_scale, noise, temperature=1.0):
    """Return mean + temperature * sigma * noise in float32."""
    return ops.cast(mean, "float32") + temperature * ops.exp(log_scale) * noise


def diagonal_normal(mean, log_scale=None):
    """Return the distribution N(mean, diag(exp(2 log_scale))), whose event is the last axis."""
    return tfp.Independent(Normal(mean, log_scale), 1)


@tfp.RegisterKL(Normal, Normal)
def _to_normal(q, p, name=None):
    distance, log_scale = q.loc - p.loc, q.log_scale
    if p.log_scale is not None:
        distance = distance * ops.exp(-p.log_scale)
        log_scale = -p.log_scale if log_scale is None else log_scale - p.log_scale
    square = ops.square(distance)
    return 0.5 * (square if log_scale is None else square + exponential_gap(2.0 * log_scale))
