import keras
from keras import ops

from keras_vattn.support.validation import number, one_of, positive_integer, positive_number

SCALES = ("rate", "paper")


class Prior(keras.layers.Layer):
    """Base class of the priors of an alignment: p, which an attention's weights are held to by the KL.

    What p means depends on the alignment: a Gamma for `Weibull`, a LogNormal for `LogNormal`, a Dirichlet for
    `Dirichlet`, a categorical for `GumbelSoftmax`. `beta` and `sigma` belong to the prior.

    It is a layer for the sake of its weights; an attention asks it for `log_psi` and never calls it. A prior of your
    own defines `log_psi`, and `build` where it has weights; every alignment takes it as it takes `ContextualPrior`.

    Attributes:
        beta, sigma, scale: As in `keras_vattn.ContextualPrior`.
        num_heads: Number of heads that it has a network for each of, `None` where one serves all.

    Example:

    >>> layer = keras_vattn.Attention(alignment="weibull", prior=keras_vattn.FixedPrior(alpha=0.1, beta=1.0))
    """

    beta = 1.0
    sigma = 1.0
    scale = "rate"
    num_heads = None

    def log_psi(self, key, keys):
        """Return log Psi in float32, normalised over the valid keys of each row, or `None` for a prior that does not
        look at the keys.

        Args:
            key: (B, S, Dk), or (B, H, S, Dk) with heads; of the nodes of a graph (N, Dk), or (H, N, Dk).
            keys: A `keras_vattn.Keys`, which says which of them a row sees.

        Returns:
            What broadcasts to the logits: (B, T or 1, S), (B, H, T or 1, S), (E,) or (H, E).
        """
        return None

    def get_config(self):
        # Keras refuses to serialise a layer that keeps its default `get_config` and was given a dtype policy object.
        return super().get_config()


@keras.saving.register_keras_serializable(package="keras_vattn")
class FixedPrior(Prior):
    """Prior that is the same for every key, query and example (Fan et al. 2020, section 3.3: "fixed").

    Gamma(alpha, beta) for `Weibull`, LogNormal(mean, sigma^2) for `LogNormal`, a symmetric Dirichlet(alpha) for
    `Dirichlet`, the uniform categorical for `GumbelSoftmax`. It is never normalised over the keys. An argument that the
    alignment has no use for stays at its default: another value is an error where the two meet.

    Args:
        alpha: Concentration of the Gamma or Dirichlet, positive. Defaults to 1.0.
        beta: Rate of the Gamma, positive. Defaults to 1.0.
        mean: Mean of log S under the LogNormal. Defaults to 0.0.
        sigma: Standard deviation of log S under the LogNormal, positive. Defaults to 1.0.

    Raises:
        ValueError: If `alpha`, `beta` or `sigma` is not positive.

    Example:

    >>> layer = keras_vattn.Attention(alignment="lognormal", prior=keras_vattn.FixedPrior(sigma=10.0))
    """

    def __init__(self, alpha=1.0, beta=1.0, mean=0.0, sigma=1.0, **kwargs):
        super().__init__(**kwargs)
        self.alpha = positive_number("alpha", alpha)
        self.beta = positive_number("beta", beta)
        self.mean = number("mean", mean)
        self.sigma = positive_number("sigma", sigma)

    def build(self, key_shape):
        pass

    def get_config(self):
        return {
            **super().get_config(),
            "alpha": self.alpha,
            "beta": self.beta,
            "mean": self.mean,
            "sigma": self.sigma,
        }


@keras.saving.register_keras_serializable(package="keras_vattn")
class ContextualPrior(Prior):
    """Prior that a small network reads off the keys, shared by all queries.

    Psi = softmax over the valid keys of w2^T relu(W1 key + b1) (Fan et al. 2020, section 3.3). With it

    - `Weibull` has the prior Gamma(beta Psi, beta) for `scale="rate"` (the published code) and Gamma(Psi, beta) for
      `scale="paper"` (the printed formula);
    - `LogNormal` has LogNormal(log Psi, sigma^2) for `"rate"` (the published code), LogNormal(Psi, sigma^2) for
      `"paper"`;
    - `Dirichlet` has Dirichlet(beta Psi) for `"rate"`, Dirichlet(Psi) for `"paper"`; `GumbelSoftmax` has
      Categorical(Psi).

    What `beta` does: with `"rate"` the prior's mean is Psi for every beta, and dKL / d log lambda = beta (E[S] - Psi),
    so that beta is the strength with which the KL pulls. The published values (1e-6 ... 1e-15) leave the posterior no
    usable gradient and pull Psi to uniform; at 10 and more Psi follows the posterior. The default of 1.0 makes the pull
    comparable with a likelihood in nats, while Psi still stays close to uniform and draws the weights there. The KL of
    a Weibull to a Gamma never reaches 0 (its floor grows as beta falls, some 80 nats for five keys at 1e-6), so KLs
    under different beta do not compare; the log shows the KL above the floor too. The entropies of
    `keras_vattn.Attention.alignment_statistics` show where q and Psi are. An alignment that has no use for `beta`,
    `sigma` or `scale` refuses another value than the default.

    Args:
        hidden_units: Width of the hidden layer (the paper's d_mid). Defaults to 10.
        beta: Rate of the Gamma, positive. Defaults to 1.0.
        sigma: Standard deviation of log S under the LogNormal, positive. Defaults to 1.0.
        scale: `"rate"` or `"paper"`. Defaults to `"rate"`.
        num_heads: With heads, `None` for one network shared by all of them, or their number for one network each.
            Defaults to `None`.
        kernel_initializer: Initializer of W1 and w2. Defaults to `"glorot_uniform"`.

    Raises:
        ValueError: If `beta`, `sigma`, `hidden_units` or `num_heads` is not positive or `scale` unknown.

    Example:

    >>> layer = keras_vattn.Attention(alignment="weibull", prior=keras_vattn.ContextualPrior(beta=10.0))
    >>> layer(keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 4)), training=True).shape, len(layer.losses)
    (TensorShape([2, 3, 4]), 1)
    """

    def __init__(
        self,
        hidden_units=10,
        beta=1.0,
        sigma=1.0,
        scale="rate",
        num_heads=None,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.hidden_units = positive_integer("hidden_units", hidden_units)
        self.beta = positive_number("beta", beta)
        self.sigma = positive_number("sigma", sigma)
        self.scale = one_of("scale", scale, SCALES)
        self.num_heads = positive_integer("num_heads", num_heads, optional=True)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, key_shape):
        heads = () if self.num_heads is None else (self.num_heads,)
        self.hidden_kernel = self.add_weight(
            name="hidden_kernel",
            shape=(*heads, key_shape[-1], self.hidden_units),
            initializer=self.kernel_initializer.clone(),
        )
        self.hidden_bias = self.add_weight(
            name="hidden_bias", shape=(*heads, *(1 for _ in heads), self.hidden_units), initializer="zeros"
        )
        # No bias behind it: the softmax would drop it.
        self.output_kernel = self.add_weight(
            name="output_kernel", shape=(*heads, self.hidden_units, 1), initializer=self.kernel_initializer.clone()
        )

    def log_psi(self, key, keys):
        dtype = self.compute_dtype
        hidden = ops.matmul(ops.cast(key, dtype), ops.cast(self.hidden_kernel, dtype))
        hidden = ops.relu(hidden + ops.cast(self.hidden_bias, dtype))
        logits = ops.matmul(hidden, ops.cast(self.output_kernel, dtype))  # (..., S, 1)
        return keys.log_softmax(keys.per_entry(ops.squeeze(logits, -1)))

    def get_config(self):
        return {
            **super().get_config(),
            "hidden_units": self.hidden_units,
            "beta": self.beta,
            "sigma": self.sigma,
            "scale": self.scale,
            "num_heads": self.num_heads,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
