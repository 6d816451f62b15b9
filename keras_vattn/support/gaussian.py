"""Diagonal Gaussians parameterised by mean and log sigma, in float32; shared by GaussianContext and GaussianLatent."""

from keras import ops

from keras_vattn.support import tfp

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


def elementwise_gaussian_divergence(mean, log_scale, prior_mean=None):
    """Return KL(N(mean, sigma^2) || N(prior_mean, 1)) of every dimension in nats, float32."""
    mean = ops.cast(mean, "float32")
    prior_mean = ops.zeros_like(mean) if prior_mean is None else prior_mean + ops.zeros_like(mean)
    posterior = tfp.Normal(mean, ops.exp(log_scale))
    return tfp.kl_divergence(posterior, tfp.Normal(prior_mean, 1.0))


def gaussian_divergence(mean, log_scale, prior_mean=None):
    """Return the KL summed over the last axis, float32."""
    return ops.sum(elementwise_gaussian_divergence(mean, log_scale, prior_mean), axis=-1)
