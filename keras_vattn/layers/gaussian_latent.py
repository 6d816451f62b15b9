import keras
from keras import ops

from keras_vattn.distributions.normal import Normal, clip_log_scale, diagonal_normal
from keras_vattn.layers.gaussian_layer import GaussianLayer
from keras_vattn.support.validation import nonnegative_number, number, positive_integer


@keras.saving.register_keras_serializable(package="keras_vattn")
class GaussianLatent(GaussianLayer):
    """Gaussian latent variable predicted from the inputs x, with a standard normal prior.

    See Kingma and Welling 2014, and Bahuleyan et al. 2018 (sections 2.1 and 2.2). Training samples the latent variable
    z. Inference returns the mean mu, except under `keras_vattn.posterior_draws`. The layer adds the KL, in nats, with
    `add_loss`. log sigma is clipped to [-8, 8].

    In a recurrent decoder, use this layer in a `keras_vattn.recurrent.LatentPart`. `LatentPart(prior=...)` replaces the
    prior N(0, I).

    Formula:
        q(z | x) = "Normal"(mu, "diag"(sigma^2)), quad mu = W_m x + b_m, quad log sigma = W_s x + b_s
        z = mu + sigma odot epsilon, quad epsilon ~ "Normal"(0, I), quad p(z) = "Normal"(0, I)
        "KL"(q || p) = sum_d (mu_d^2 + sigma_d^2 - 1 - 2 log sigma_d) / 2

    Args:
        units: Width of z.
        temperature: Factor that multiplies sigma in samples at inference; 0 gives the mean. Defaults to 1.0.
        free_bits: Minimum KL of each dimension in the loss, in nats. The KL of a dimension is averaged over the valid
            queries of the batch. A smaller average is replaced with `free_bits` (Kingma et al. 2016, eq. 15). Defaults
            to 0.0.
        free_nats: Minimum KL of each example in the loss, in nats. The KL of an example is summed over queries and
            dimensions. A smaller sum is replaced with `free_nats`. The KL of a single query can still be 0. Defaults to
            0.0.
        kernel_initializer: Initializer of W_m and W_s. Defaults to `"glorot_uniform"`.
        initial_log_scale: Initial value of b_s. The initial W_m and W_s are multiplied by exp(initial_log_scale). If a
            decoder samples z at every step, use a small value, such as -3. Otherwise, the noise hides the other inputs
            of the decoder. Also use a prior with the same initial log sigma, as in `keras_vattn.StochasticDecoder`: the
            KL from log sigma = -3 to N(0, I) is at least 2.5 nats per dimension. Defaults to 0.0.
        **kwargs: Arguments of `keras_vattn.StochasticLayer` (`kl_weight`, `seed`, ...) and of every Keras layer.

    Call arguments:
        inputs: (B, ..., D). The axes between the first and the last are the queries of the KL.
        mask: Boolean (B, ...) or `None`. Masked entries add no KL.
        training: Whether to draw samples.

    Returns:
        z, (B, ..., units).

    Raises:
        ValueError: If `units` is not positive, or `temperature`, `free_bits` or `free_nats` is negative.
        ValueError: If both `free_bits` and `free_nats` are set.

    Example:

    >>> z = keras_vattn.GaussianLatent(4, kl_annealing=keras_vattn.LinearAnnealing(1000))
    >>> z(keras.ops.ones((2, 3)), training=True).shape
    TensorShape([2, 4])
    """

    def __init__(
        self,
        units,
        temperature=1.0,
        free_bits=0.0,
        free_nats=0.0,
        *,
        kernel_initializer="glorot_uniform",
        initial_log_scale=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.units = positive_integer("units", units)
        self.temperature = nonnegative_number("temperature", temperature)
        self.free_bits = nonnegative_number("free_bits", free_bits)
        self.free_nats = nonnegative_number("free_nats", free_nats)
        if self.free_bits and self.free_nats:
            raise ValueError(
                "Set only one of `free_bits` (per dimension) and `free_nats` (per example). "
                f"Received: free_bits={self.free_bits}, free_nats={self.free_nats}"
            )
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.initial_log_scale = number("initial_log_scale", initial_log_scale, minimum=-8.0, maximum=8.0)
        self.supports_masking = True
        self.track_divergence()

    def parameters(self, inputs, kernels=None):
        """Return a dictionary with the mean and log sigma of q, both (B, ..., units). log sigma is float32.

        Args:
            inputs: (B, ..., D).
            kernels: Result of the method `kernels`, or `None`.
        """
        mean, log_scale = self.linear(inputs, kernels)
        return {"mean": mean, "log_scale": clip_log_scale(log_scale)}

    def account(self, parameters, mask=None, training=None, prior=None):
        """Add KL(q || p) of all latent vectors, with one `add_loss` per call.

        Args:
            parameters: Result of the method `parameters`: mean and log sigma (in [-8, 8]) of q, both (B, ..., units).
            mask: Boolean (B, ...) or `None`.
            training: The argument `training` of the call.
            prior: Parameters of p in the same form, or `None` for N(0, I).
        """
        q = Normal(parameters["mean"], parameters["log_scale"])
        by_dimension = q.kl_divergence(Normal(0.0) if prior is None else Normal(prior["mean"], prior["log_scale"]))
        divergence = ops.sum(by_dimension, axis=-1)
        penalised, axes = None, tuple(range(len(divergence.shape)))
        valid = ops.ones_like(divergence) if mask is None else ops.cast(mask, "float32")
        if self.free_nats:
            counted = ops.sum(ops.where(valid > 0, divergence, 0.0), axis=axes[1:], keepdims=True)
            num_queries = ops.sum(valid, axis=axes[1:], keepdims=True)
            # Without this division, `add_divergence` would add the sum once for each query.
            query_penalty = ops.divide_no_nan(ops.maximum(counted, self.free_nats), num_queries)
            penalised = query_penalty + ops.zeros_like(divergence)
        elif self.free_bits:
            # Do not multiply by the mask: a masked KL may be infinite, and 0 * inf is NaN.
            counted = ops.where(valid[..., None] > 0, by_dimension, 0.0)
            average = ops.divide_no_nan(ops.sum(counted, axis=axes), ops.sum(valid))  # (units,)
            penalised = ops.sum(ops.maximum(average, self.free_bits)) + ops.zeros_like(divergence)
        self.add_divergence(divergence, mask, entries=self.units, training=training, penalised=penalised)

    def call(self, inputs, mask=None, training=None):
        parameters = self.parameters(inputs)
        self.account(parameters, mask, training)
        noise = self.draw_noise(ops.shape(parameters["mean"]), self.noise_seed(training))
        return self.sample(parameters, noise, training)

    def posterior_distribution(self, inputs):
        """Return q(z | x), a TensorFlow Probability distribution with event shape (units,). The layer must be built."""
        self.require_built()
        return diagonal_normal(**self.parameters(inputs))

    def prior_distribution(self, inputs):
        """Return p(z) = N(0, I), with the batch and event shape of q."""
        return diagonal_normal(ops.zeros((*ops.shape(inputs)[:-1], self.units), "float32"))

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.units)

    def compute_output_spec(self, inputs, mask=None, training=None):
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            **self.stochastic_config(),
            "units": self.units,
            "temperature": self.temperature,
            "free_bits": self.free_bits,
            "free_nats": self.free_nats,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "initial_log_scale": self.initial_log_scale,
        }
