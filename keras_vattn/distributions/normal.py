"""Diagonal Gaussians parameterised by mean and log sigma, in float32; shared by GaussianContext and GaussianLatent."""

from keras import ops

from keras_vattn.support import tfp
from keras_vattn.support.special import exponential_gap

# sigma between 3.4e-4 and 2981: the draw stays inside float16, the KL inside float32.
MAX_LOG_SCALE = 8.0


def clip_log_scale(log_scale):
    """Return log sigma as float32 inside [-8, 8]; the gradient passes, so that a sigma at the limit can come back."""
    log_scale = ops.cast(log_scale, "float32")
    return log_scale + ops.stop_gradient(ops.clip(log_scale, -MAX_LOG_SCALE, MAX_LOG_SCALE) - log_scale)


def diagonal_normal(mean, log_scale):
    """Return N(mean, diag(exp(2 log_scale))) over the last axis, a TensorFlow Probability distribution."""
    return tfp.Independent(tfp.Normal(ops.cast(mean, "float32"), ops.exp(log_scale)), 1)


def gaussian_sample(mean, log_scale, noise, temperature=1.0):
    """Return mean + temperature * sigma * noise in float32."""
    return ops.cast(mean, "float32") + temperature * ops.exp(log_scale) * noise


def elementwise_gaussian_divergence(mean, log_scale, prior_mean=None, prior_log_scale=None):
    """Return KL(N(mean, sigma^2) || N(prior_mean, prior_sigma^2)) of every dimension in nats, float32.

    Args:
        mean: Any shape and dtype.
        log_scale: log sigma, float32, inside the limits of `clip_log_scale`.
        prior_mean: A tensor that broadcasts to `mean`, or `None` for 0.
        prior_log_scale: As `log_scale`, or `None` for 0.
    """
    distance = ops.cast(mean, "float32")
    if prior_mean is not None:
        distance = distance - ops.cast(prior_mean, "float32")
    if prior_log_scale is not None:
        distance = distance * ops.exp(-prior_log_scale)
        log_scale = log_scale - prior_log_scale
    return 0.5 * (ops.square(distance) + exponential_gap(2.0 * log_scale))


def gaussian_divergence(mean, log_scale, prior_mean=None, prior_log_scale=None):
    """Return the KL summed over the last axis, float32."""
    return ops.sum(elementwise_gaussian_divergence(mean, log_scale, prior_mean, prior_log_scale), axis=-1)
