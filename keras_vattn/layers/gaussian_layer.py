import math

from keras import ops
from keras.initializers import Constant

from keras_vattn import random
from keras_vattn.distributions.normal import gaussian_sample
from keras_vattn.layers.stochastic_layer import StochasticLayer
from keras_vattn.support.products import product


class GaussianLayer(StochasticLayer):
    """Base class of layers that sample a diagonal Gaussian, whose parameters are computed from the inputs.

    A subclass sets `units`, `temperature`, `kernel_initializer` and `initial_log_scale`. The subclass also defines
    `call`, for inputs (B, ..., D), and `parameters`, which computes the mean and log sigma of the Gaussian from
    `linear`. A recurrent decoder calls `kernels` and `draw_noise` before its loop, and `parameters` and `sample` inside
    the loop.
    """

    # Key of the noise in the result of `draw_noise`.
    noise_name = "latent"
    feature_arguments = ("inputs",)

    def build(self, inputs_shape):
        width, initial_bias = inputs_shape[-1], Constant(self.initial_log_scale)
        size = (width, self.units)
        self.mean_kernel = self.add_weight(name="mean_kernel", shape=size, initializer=self.initial_kernel)
        self.mean_bias = self.add_weight(name="mean_bias", shape=(self.units,), initializer="zeros")
        self.log_scale_kernel = self.add_weight(name="log_scale_kernel", shape=size, initializer=self.initial_kernel)
        self.log_scale_bias = self.add_weight(name="log_scale_bias", shape=(self.units,), initializer=initial_bias)

    def initial_kernel(self, shape, dtype=None):
        """Return an initial kernel, scaled by the initial sigma. Otherwise, the initial KL could be large."""
        return math.exp(self.initial_log_scale) * self.kernel_initializer.clone()(shape, dtype)

    def kernels(self):
        """Return a dictionary of the kernel and bias for `parameters`. A decoder calls this method before its loop."""
        kernel = ops.concatenate([self.mean_kernel, self.log_scale_kernel], axis=-1)
        bias = ops.concatenate([self.mean_bias, self.log_scale_bias], axis=-1)
        return {"kernel": ops.cast(kernel, self.compute_dtype), "bias": ops.cast(bias, self.compute_dtype)}

    def linear(self, inputs, kernels=None):
        """Return the linear maps for the mean and for log sigma, both (B, ..., units)."""
        kernels = self.kernels() if kernels is None else kernels
        both_maps = product(ops.cast(inputs, self.compute_dtype), kernels["kernel"]) + kernels["bias"]
        return ops.split(both_maps, 2, axis=-1)

    def draw_noise(self, shape, seed):
        """Return a dictionary with the noise (B, ..., units). If `seed` is `None`, the dictionary is empty."""
        return {} if seed is None else {self.noise_name: random.normal(shape, seed)}

    def sample(self, parameters, noise, training=False):
        """Return samples (B, ..., units), or the mean if `noise` is empty."""
        mean = parameters["mean"]
        if self.noise_name in noise:
            temperature = self.draw_temperature(training, self.temperature)
            mean = gaussian_sample(mean, parameters["log_scale"], noise[self.noise_name], temperature)
        return ops.cast(mean, self.compute_dtype)
