import keras
from keras import ops

from keras_vattn.distributions.normal import Normal, clip_log_scale, diagonal_normal
from keras_vattn.layers.gaussian_layer import GaussianLayer
from keras_vattn.support.validation import nonnegative_number, number, positive_integer


@keras.saving.register_keras_serializable(package="keras_vattn")
class PredictedContext(GaussianLayer):
    """Predicts an attended vector c from a latent variable z (VRAE-SA; Chien and Wang 2019, equations 16 and 19).

    A decoder reads the prediction tilde(c) instead of c, so the decoder can generate without a memory. Training samples
    tilde(c) from p. Inference returns the mean of p, except under `keras_vattn.posterior_draws`.

    If you pass the target c, training adds an auxiliary term to the loss: -log p(sg(c) | z), where sg stops the
    gradient to c. The term trains z to contain information about c. The term is not part of the ELBO, and
    `keras_vattn.divergences` omits the term. The log shows the unweighted term, in nats, under the name of the layer
    with the suffix `_nats`. Chien and Wang 2019 (equation 8) use the negative entropy of p instead. The entropy does
    not depend on c, so z would learn nothing about c.

    With `informed=True` and a target, the posterior q with mean c replaces p, so a decoder receives information
    about c. The KL, sum_d (c_d - mu_d)^2 / (2 sigma_d^2), replaces the auxiliary term. The KL is part of the ELBO and
    has a gradient with respect to c. The log shows the KL with the suffix `_kl`.

    Formula:
        tilde(c) ~ p(tilde(c) | z) = "Normal"(mu, "diag"(sigma^2)), quad mu = W_m z + b_m
        log sigma = "min_log_scale" + "softplus"(W_s z + b_s)
        "loss" = -"kl_weight" * "kl_annealing" * 1/B sum_b log p("sg"(c) | z)
        "or" quad tilde(c) ~ q(tilde(c) | c, z) = "Normal"(c, "diag"(sigma^2)) quad "(informed)"
        "loss" = "kl_weight" * "kl_annealing" * 1/B sum_b "KL"(q(tilde(c) | c, z) || p(tilde(c) | z))

    Args:
        units: Width of c and its prediction.
        min_log_scale: Smallest log sigma, which bounds log p(c | z) from above. Defaults to -3.0.
        temperature: Factor that multiplies sigma in samples at inference. Defaults to 1.0.
        informed: Whether tilde(c) is drawn around the target c, which adds a KL. Defaults to `False`.
        kernel_initializer: Initializer of W_m and W_s. Defaults to `"glorot_uniform"`.
        **kwargs: Arguments of `keras_vattn.StochasticLayer` (`kl_weight`, `seed`, ...) and of every Keras layer.
            `kl_weight` (alpha in Chien and Wang 2019) and the other KL arguments also apply to the auxiliary term.

    Call arguments:
        inputs: z, (B, ..., D).
        target: c, (B, ..., units), or `None` to add nothing to the loss.
        mask: Boolean (B, ...) or `None`. Masked entries add nothing to the loss.
        training: Whether to draw samples and add the auxiliary term.

    Returns:
        tilde(c), (B, ..., units).

    Raises:
        ValueError: If `units` is not positive, or `kl_weight` or `temperature` is negative.
        ValueError: If the width of the target is not `units`.

    Example:

    >>> layer = keras_vattn.PredictedContext(6, kl_weight=0.1)
    >>> latent, context = keras.ops.ones((2, 4, 3)), keras.ops.ones((2, 4, 6))
    >>> layer(latent, context, training=True).shape, len(layer.losses)
    (TensorShape([2, 4, 6]), 1)
    """

    noise_name = "prediction"
    # Initial value of b_s. This is not the initial log sigma, which also contains `min_log_scale` and softplus.
    initial_log_scale = 0.0

    def __init__(
        self,
        units,
        min_log_scale=-3.0,
        *,
        temperature=1.0,
        informed=False,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.units = positive_integer("units", units)
        self.min_log_scale = number("min_log_scale", min_log_scale, minimum=-8.0, maximum=8.0)
        self.temperature = nonnegative_number("temperature", temperature)
        self.informed = bool(informed)
        self.logged_as = "kl" if self.informed else "nats"
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.supports_masking = True
        self.track_divergence(shown=False)

    def build(self, inputs_shape, target_shape=None):
        super().build(inputs_shape)

    def parameters(self, inputs, kernels=None):
        """Return a dictionary with the mean and log sigma of p, both (B, ..., units). log sigma is float32.

        Args:
            inputs: z, (B, ..., D).
            kernels: Result of the method `kernels`, or `None`.
        """
        mean, log_scale = self.linear(inputs, kernels)
        above = ops.softplus(ops.cast(log_scale, "float32"))
        return {"mean": mean, "log_scale": clip_log_scale(self.min_log_scale + above)}

    def posterior(self, parameters, target):
        """Return the parameters of q, whose mean is the target, if `informed` is `True`. Otherwise, those of p."""
        return {**parameters, "mean": ops.cast(target, parameters["mean"].dtype)} if self.informed else parameters

    def account(self, parameters, target, mask=None, training=None):
        """Add one loss: the KL if `informed` is `True`, otherwise the auxiliary term.

        Args:
            parameters: Parameters of p, as the method `parameters` returns them.
            target: c, (B, ..., units). The auxiliary term has no gradient with respect to c.
            mask: Boolean (B, ...) or `None`.
            training: The argument `training` of the call.
        """
        self._check_target(target)
        if self.informed:
            q, p = (Normal(mean, parameters["log_scale"]) for mean in (target, parameters["mean"]))
            nats = ops.sum(q.kl_divergence(p), axis=-1)
        else:
            nats = -diagonal_normal(**parameters).log_prob(ops.cast(ops.stop_gradient(target), "float32"))
        self.add_divergence(nats, mask, entries=self.units, training=training)

    def _check_target(self, target):
        if target.shape[-1] not in (self.units, None):
            raise ValueError(
                f"The target must have the width `units`. Received: target.shape={tuple(target.shape)}, "
                f"units={self.units}"
            )

    def _current_kl_weight(self, training):
        return super()._current_kl_weight(training) if training or self.informed else 0.0

    def divergence_of_last_call(self, weighted=False):
        return super().divergence_of_last_call(weighted) if self.informed else None

    def call(self, inputs, target=None, mask=None, training=None):
        parameters = self.parameters(inputs)
        if target is not None:
            self.account(parameters, target, mask, training)
            parameters = self.posterior(parameters, target)
        noise = self.draw_noise(ops.shape(parameters["mean"]), self.noise_seed(training))
        return self.sample(parameters, noise, training)

    def distribution(self, inputs):
        """Return p(tilde(c) | z), a TensorFlow Probability distribution. The layer must be built."""
        self.require_built()
        return diagonal_normal(**self.parameters(inputs))

    def compute_output_shape(self, inputs_shape, target_shape=None):
        return (*inputs_shape[:-1], self.units)

    def compute_output_spec(self, inputs, target=None, mask=None, training=None):
        if target is not None:
            self._check_target(target)
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            **self.stochastic_config(),
            "units": self.units,
            "min_log_scale": self.min_log_scale,
            "temperature": self.temperature,
            "informed": self.informed,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
