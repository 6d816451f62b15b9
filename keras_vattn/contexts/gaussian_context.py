import keras
from keras import ops

from keras_vattn import random
from keras_vattn.contexts.context import Context
from keras_vattn.distributions.normal import clip_log_scale, diagonal_normal, gaussian_sample
from keras_vattn.support.products import product
from keras_vattn.support.validation import nonnegative_number, one_of, positive_integer

PRIORS = ("standard", "mean")


@keras.saving.register_keras_serializable(package="keras_vattn")
class GaussianContext(Context):
    """Gaussian variational attention, in which the attended *vector* is a random variable.

    The posterior q is from Bahuleyan et al. 2018, section 3.3, and the prior p from section 3.2. The context of query t
    is c_t here, and a_t in the paper. With `prior="mean"`, the mean of p is the average of the values over the *valid*
    source positions. Gradients flow through this average, as in section 3.4. log sigma is clipped to [-8, 8].

    In training, c_t is sampled, with independent noise for each query. Inference returns the mean mu_t, except under
    `keras_vattn.posterior_draws`. A query without a valid key has a context of zero and a KL of zero.

    Formula:
        q(c_t) = "Normal"(mu_t, "diag"(sigma_t^2)), quad mu_t = sum_s w_(t,s) "value"_s
        log sigma_t = W_2 tanh(W_1 mu_t + b_1) + b_2
        p(c_t) = "Normal"(0, I) quad "(standard)", quad p(c_t) = "Normal"(bar("value")_t, I) quad "(mean)"
        c_t = mu_t + sigma_t odot epsilon_t, quad epsilon_t ~ "Normal"(0, I)

    Args:
        prior: `"standard"` or `"mean"`. Defaults to `"standard"`.
        hidden_units: Width of the tanh layer, an integer. `None` uses the width of the values, as in the code of
            Bahuleyan et al. 2018. Defaults to `None`.
        temperature: Factor that multiplies sigma in samples at inference; 0 gives the mean. It affects neither training
            nor the KL. Defaults to 1.0.
        kernel_initializer: Initializer of W_1 and W_2. Defaults to `"glorot_uniform"`.

    Call arguments:
        weights: (B, T, S), on the simplex.
        value: (B, S, D).

    Returns:
        The posterior mean, (B, T, D). The method `sample` draws around this mean.

    Raises:
        ValueError: If `prior` is unknown, `temperature` negative or `hidden_units` not positive.

    Example:

    >>> layer = keras_vattn.Attention(context=keras_vattn.GaussianContext(prior="mean"))
    >>> layer(keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 4)), training=True).shape
    TensorShape([2, 3, 4])
    """

    has_divergence = True

    def __init__(
        self, prior="standard", hidden_units=None, temperature=1.0, kernel_initializer="glorot_uniform", **kwargs
    ):
        super().__init__(**kwargs)
        self.prior = one_of("prior", prior, PRIORS)
        self.hidden_units = positive_integer("hidden_units", hidden_units, optional=True)
        self.temperature = nonnegative_number("temperature", temperature)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, weights_shape, value_shape):
        width = value_shape[-1]
        hidden_units = self.hidden_units or width
        self.hidden_kernel = self.add_weight(
            name="hidden_kernel", shape=(width, hidden_units), initializer=self.kernel_initializer.clone()
        )
        self.hidden_bias = self.add_weight(name="hidden_bias", shape=(hidden_units,), initializer="zeros")
        self.log_scale_kernel = self.add_weight(
            name="log_scale_kernel", shape=(hidden_units, width), initializer=self.kernel_initializer.clone()
        )
        self.log_scale_bias = self.add_weight(name="log_scale_bias", shape=(width,), initializer="zeros")

    def noise(self, shape, seed):
        return random.normal(shape, seed)

    def posterior_parameters(self, mean):
        rows = ops.reshape(ops.cast(mean, self.compute_dtype), (-1, mean.shape[-1]))
        hidden = ops.tanh(product(rows, self.hidden_kernel) + ops.cast(self.hidden_bias, rows.dtype))
        log_scale = product(hidden, self.log_scale_kernel) + ops.cast(self.log_scale_bias, rows.dtype)
        return {"log_scale": ops.reshape(clip_log_scale(log_scale), ops.shape(mean))}

    def prior_parameters(self, value, keys):
        return None if self.prior == "standard" else keys.average(value)

    def sample(self, mean, parameters, noise, temperature=1.0):
        if noise is None:
            return mean
        return ops.cast(gaussian_sample(mean, parameters["log_scale"], noise, temperature), mean.dtype)

    def distribution(self, mean, parameters):
        return diagonal_normal(mean, parameters["log_scale"])

    def prior_distribution(self, mean, prior_mean):
        loc = ops.zeros_like(ops.cast(mean, "float32"))
        return diagonal_normal(loc if prior_mean is None else loc + prior_mean)

    def get_config(self):
        return {
            **super().get_config(),
            "prior": self.prior,
            "hidden_units": self.hidden_units,
            "temperature": self.temperature,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
