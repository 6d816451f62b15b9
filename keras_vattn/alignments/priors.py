import math

import keras
from keras import ops

from keras_vattn import distributions
from keras_vattn.support.products import matmul
from keras_vattn.support.special import soft_clamp
from keras_vattn.support.validation import number, one_of, positive_integer, positive_number, refuse_unread

SCALES = ("rate", "paper")


class Prior(keras.layers.Layer):
    """Base class of priors. A prior defines p, the distribution towards which the KL pulls the attention weights.

    By default, p is the posterior q with log Psi in place of the logits, where log Psi is the result of `log_psi`. All
    other parameters, such as k or sigma, are the parameters of q. The KL can therefore reach 0. To define a different
    p, override `distribution`.

    A prior is a Keras layer because it may have weights. A custom prior defines `log_psi`, and `build` if the prior has
    weights. Every alignment that accepts a `ContextualPrior` also accepts a custom prior.

    Attributes:
        num_heads: Number of heads if each head has its own network, `None` if all heads share one network.

    Example:

    >>> class First(keras_vattn.Prior):  # prefers the first keys
    ...     def log_psi(self, key, keys):
    ...         index = keras.ops.arange(key.shape[-2], dtype="float32") + 0.0 * key[..., 0]
    ...         return keys.log_softmax(keys.per_entry(-index))
    >>> layer = keras_vattn.Attention(alignment="lognormal", prior=First())
    """

    num_heads = None

    def log_psi(self, key, keys):
        """Return log Psi in float32, or `None` if the prior does not read the keys.

        Psi sums to one over the valid keys of each row.

        Args:
            key: (B, S, Dk), or (B, H, S, Dk) with heads. The nodes of a graph: (N, Dk), or (H, N, Dk) with heads.
            keys: A `keras_vattn.Keys`, which defines the valid keys of each row.

        Returns:
            An array that broadcasts to the logits: (B, T or 1, S), (B, H, T or 1, S), (E,) or (H, E).
        """
        return None

    @property
    def reads_keys(self):
        """Whether p depends on the keys."""
        return type(self).log_psi is not Prior.log_psi

    def distribution(self, alignment, log_psi, logits, keys, **at_step):
        """Return p, a TensorFlow Probability distribution with the event shape of q.

        Args:
            alignment: The `Alignment` that defines q.
            log_psi: Result of the method `log_psi`.
            logits: Logits of q. Only their shape is used.
            keys: As in `log_psi`.
            **at_step: Scalars that `alignment.at_step` returns.
        """
        return alignment.posterior(ops.zeros_like(logits) if log_psi is None else log_psi, keys, **at_step)

    def check_on_simplex(self):
        """Raise ValueError if a constructor argument cannot change the distribution of normalised weights."""

    def get_config(self):
        # Without this method, Keras could not serialise a prior whose `dtype` is a policy object.
        return super().get_config()


@keras.saving.register_keras_serializable(package="keras_vattn")
class FixedPrior(Prior):
    """Prior that treats all keys equally: p is q with all logits set to 0.

    With `GumbelSoftmax`, p is the uniform categorical distribution. For a fixed p of a particular family (Fan et al.
    2020, section 3.3), use `keras_vattn.GammaPrior(1.0)`, `LogNormalPrior(0.0)` or `DirichletPrior(1.0)`.

    Formula:
        p = q quad "at" quad phi_(t,s) = 0

    Example:

    >>> layer = keras_vattn.Attention(alignment="lognormal", prior=keras_vattn.FixedPrior())
    """

    def build(self, key_shape):
        pass


@keras.saving.register_keras_serializable(package="keras_vattn")
class ContextualPrior(Prior):
    """Prior of the same family as the posterior, computed from the keys by a small network that all queries share.

    Psi is the softmax of the network's output over the valid keys (Fan et al. 2020, section 3.3). The prior p is the
    posterior q with log Psi in place of the logits. The KL is 0 if the logits equal log Psi. Fan et al. 2020 use other
    priors: `keras_vattn.GammaPrior` and `LogNormalPrior`.

    With a `Weibull` alignment, use `kl_of="weights"`. With `kl_of="draws"`, the KL grows as
    exp(k (log E[S] - log Psi)), where S are the unnormalised weights, and is usable only if k is small.

    Formula:
        Psi_(t,s) = "softmax"_s(v^T "relu"(W "key"_s + b))
        p = q quad "at" quad phi_(t,s) = log Psi_(t,s)

    Args:
        hidden_units: Width of the hidden layer (d_mid in Fan et al. 2020). Defaults to 10.
        num_heads: `None` for one network that all heads share, or the number of heads for one network per head.
            Defaults to `None`.
        kernel_initializer: Initializer of W and v. Defaults to `"glorot_uniform"`.

    Raises:
        ValueError: If `hidden_units` or `num_heads` is not positive.

    Example:

    >>> prior = keras_vattn.ContextualPrior(hidden_units=4)
    >>> layer = keras_vattn.Attention(alignment="lognormal", prior=prior)
    >>> query, value = keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 4))
    >>> layer(query, value, training=True).shape, len(layer.losses)
    (TensorShape([2, 3, 4]), 1)
    """

    def __init__(self, hidden_units=10, num_heads=None, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.hidden_units = positive_integer("hidden_units", hidden_units)
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
        # An output bias would have no effect: the softmax cancels it.
        self.output_kernel = self.add_weight(
            name="output_kernel", shape=(*heads, self.hidden_units, 1), initializer=self.kernel_initializer.clone()
        )

    def log_psi(self, key, keys):
        dtype = self.compute_dtype
        heads = () if self.num_heads is None else (self.num_heads,)
        key = ops.moveaxis(key, -3, 0) if heads else key
        shape = ops.shape(key)
        rows = ops.cast(ops.reshape(key, (*heads, -1, shape[-1])), dtype)
        hidden = ops.relu(matmul(rows, ops.cast(self.hidden_kernel, dtype)) + ops.cast(self.hidden_bias, dtype))
        logits = ops.reshape(matmul(hidden, ops.cast(self.output_kernel, dtype)), shape[:-1])
        logits = ops.moveaxis(logits, 0, -2) if heads else logits
        return keys.log_softmax(keys.per_entry(logits))

    def get_config(self):
        return {
            **super().get_config(),
            "hidden_units": self.hidden_units,
            "num_heads": self.num_heads,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


class FamilyPrior(ContextualPrior):
    """Base class of priors with a constructor argument that is a number (fixed prior) or `None` (contextual prior).

    A subclass sets `fixed_by` to the name of this argument, and calls `_refuse_if_fixed` in `__init__`.
    """

    fixed_by = None

    def __init__(self, scale="rate", **kwargs):
        super().__init__(**kwargs)
        self.scale = one_of("scale", scale, SCALES)

    @property
    def reads_keys(self):
        return getattr(self, self.fixed_by) is None

    def build(self, key_shape):
        if self.reads_keys:
            super().build(key_shape)

    def log_psi(self, key, keys):
        return super().log_psi(key, keys) if self.reads_keys else None

    def _refuse_if_fixed(self):
        if not self.reads_keys:
            refuse_unread(self, self.fixed_by, scale="rate", hidden_units=10, num_heads=None)

    def get_config(self):
        return {**super().get_config(), "scale": self.scale}


@keras.saving.register_keras_serializable(package="keras_vattn")
class GammaPrior(FamilyPrior):
    """Gamma prior p of the unnormalised weights S, for the Weibull attention of Fan et al. 2020.

    A contextual prior (`alpha=None`) computes Psi, a softmax over the keys, as in `keras_vattn.ContextualPrior`. A
    fixed prior uses the number `alpha` for every key. `scale="rate"` follows the code of Fan et al. 2020, and `"paper"`
    follows their section 3.3. If the alignment has `kl_of="weights"`, p is Dirichlet(alpha_t).

    With `scale="rate"`, the mean of a contextual prior is Psi. The gradient of the KL is proportional to `beta`:

    - With a `beta` below 1e-3 (published: down to 1e-15), the KL hardly affects q, and Psi becomes uniform.
    - With `beta=1.0`, the default, the gradient is comparable to the gradient of a likelihood in nats. Psi stays close
      to uniform and pulls the weights towards uniform.
    - With a `beta` of 10 or more, Psi follows the posterior.

    `keras_vattn.Attention.alignment_statistics` shows the entropies of q and Psi. The KL of a Weibull to a Gamma never
    reaches 0. The smallest possible KL, the floor, grows as `beta` decreases: for five keys and `beta=1e-6`, it is
    about 80 nats. Do not compare KLs of models with different `beta`. The log also shows the KL minus the floor.

    Formula:
        p(S_(t,s)) = "Gamma"(alpha_(t,s), beta)
        alpha_(t,s) = beta Psi_(t,s) quad "(rate)", quad Psi_(t,s) quad "(paper)", quad alpha quad "(fixed)"
        (del "KL"(q || p)) / (del log lambda_(t,s)) = beta (bb E[S_(t,s)] - Psi_(t,s)) quad "(Weibull, rate)"

    Args:
        alpha: Concentration for every key, positive, or `None` for a contextual prior. Defaults to `None`.
        beta: Rate, positive. Defaults to 1.0.
        scale: `"rate"` or `"paper"`. Defaults to `"rate"`.
        **kwargs: `hidden_units`, `num_heads` and `kernel_initializer` as in `keras_vattn.ContextualPrior`.

    Raises:
        ValueError: If `alpha` or `beta` is not positive, `scale` is unknown, or an argument would have no effect.

    Example:

    >>> prior = keras_vattn.GammaPrior(beta=10.0)
    >>> layer = keras_vattn.Attention(alignment="weibull", prior=prior)
    >>> query, value = keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 4))
    >>> layer(query, value, training=True).shape, len(layer.losses)
    (TensorShape([2, 3, 4]), 1)
    """

    fixed_by = "alpha"

    def __init__(self, alpha=None, beta=1.0, scale="rate", **kwargs):
        super().__init__(scale=scale, **kwargs)
        self.alpha = None if alpha is None else positive_number("alpha", alpha)
        self.beta = positive_number("beta", beta)
        self._refuse_if_fixed()

    def check_on_simplex(self):
        # In these cases, `beta` has no effect: it scales all weights of a row by the same factor.
        if not self.reads_keys or self.scale == "paper":
            refuse_unread(self, self.fixed_by, beta=1.0)

    def distribution(self, alignment, log_psi, logits, keys, **at_step):
        log_beta = math.log(self.beta)
        if log_psi is None:
            log_alpha = math.log(self.alpha)
            log_alphas = keys.one_per_key(log_alpha, logits)
            return distributions.Gamma(
                log_alphas, log_beta, keys, lambda count: ops.log(count) + (log_alpha - log_beta)
            )
        log_alpha, log_total = (log_psi + log_beta, 0.0) if self.scale == "rate" else (log_psi, -log_beta)
        return distributions.Gamma(log_alpha, log_beta, keys, lambda count: log_total)

    def get_config(self):
        return {**super().get_config(), "alpha": self.alpha, "beta": self.beta}


@keras.saving.register_keras_serializable(package="keras_vattn")
class LogNormalPrior(FamilyPrior):
    """Lognormal prior of the unnormalised weights S (Fan et al. 2020, section 3.3).

    A contextual prior (`mean=None`) computes Psi, a softmax over the keys, as in `keras_vattn.ContextualPrior`. A fixed
    prior uses the number `mean` for every key. `scale="rate"` follows the code of Fan et al. 2020, `"paper"` their
    formula.

    Formula:
        p(log S_(t,s)) = "Normal"(mu_(t,s), sigma^2)
        mu_(t,s) = log Psi_(t,s) quad "(rate)", quad Psi_(t,s) quad "(paper)", quad "mean" quad "(fixed)"

    Args:
        mean: Mean of log S for every key, or `None` for a contextual prior. Defaults to `None`.
        sigma: Standard deviation of log S, positive. Defaults to 1.0.
        scale: `"rate"` or `"paper"`. Defaults to `"rate"`.
        **kwargs: `hidden_units`, `num_heads` and `kernel_initializer` as in `keras_vattn.ContextualPrior`.

    Raises:
        ValueError: If `sigma` is not positive, `scale` is unknown, or an argument would have no effect.

    Example:

    >>> prior = keras_vattn.LogNormalPrior(mean=0.0, sigma=10.0)
    >>> layer = keras_vattn.Attention(alignment="lognormal", prior=prior)
    """

    fixed_by = "mean"

    def __init__(self, mean=None, sigma=1.0, scale="rate", **kwargs):
        super().__init__(scale=scale, **kwargs)
        self.mean = number("mean", mean, optional=True)
        self.sigma = positive_number("sigma", sigma)
        self._refuse_if_fixed()

    def check_on_simplex(self):
        if not self.reads_keys:
            refuse_unread(self, "sigma", mean=0.0)

    def distribution(self, alignment, log_psi, logits, keys, **at_step):
        if log_psi is None:
            mean = keys.one_per_key(self.mean, logits)
        else:
            mean = log_psi if self.scale == "rate" else ops.exp(log_psi)
        return distributions.LogNormal(mean, self.sigma, keys)

    def get_config(self):
        return {**super().get_config(), "mean": self.mean, "sigma": self.sigma}


@keras.saving.register_keras_serializable(package="keras_vattn")
class DirichletPrior(GammaPrior):
    """Dirichlet prior of the normalised weights: the distribution of normalised draws from a `keras_vattn.GammaPrior`.

    A contextual prior (`alpha=None`) computes Psi, a softmax over the keys, as in `keras_vattn.ContextualPrior`. A
    fixed prior uses the number `alpha` for every key. A smooth clamp limits the concentrations to the range of the
    alignment. If the alignment defines no range, the limits are e^-10 and e^10.

    Formula:
        p(w_t) = "Dirichlet"("clamp"(alpha_t))
        alpha_(t,s) = beta Psi_(t,s) quad "(rate)", quad Psi_(t,s) quad "(paper)", quad alpha quad "(fixed)"

    Args:
        alpha: Concentration for every key, positive, or `None` for a contextual prior. Defaults to `None`.
        beta: Sum of the concentrations of a contextual prior, positive. Defaults to 1.0.
        scale: `"rate"` or `"paper"`. Defaults to `"rate"`.
        **kwargs: `hidden_units`, `num_heads` and `kernel_initializer` as in `keras_vattn.ContextualPrior`.

    Raises:
        ValueError: If `alpha` or `beta` is not positive, `scale` is unknown, or an argument would have no effect.

    Example:

    >>> prior = keras_vattn.DirichletPrior(alpha=0.5)
    >>> layer = keras_vattn.Attention(alignment="dirichlet", prior=prior)
    """

    def __init__(self, alpha=None, beta=1.0, scale="rate", **kwargs):
        super().__init__(alpha, beta, scale, **kwargs)
        self.check_on_simplex()

    def distribution(self, alignment, log_psi, logits, keys, **at_step):
        log_concentration = super().distribution(alignment, log_psi, logits, keys).log_concentration
        ends = getattr(alignment, "min_log_concentration", -10.0), getattr(alignment, "max_log_concentration", 10.0)
        return distributions.Dirichlet(ops.exp(soft_clamp(log_concentration, *ends)), keys)
