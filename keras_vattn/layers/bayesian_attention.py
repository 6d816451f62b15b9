import keras

from keras_vattn.alignments import LogNormal, Weibull
from keras_vattn.layers.named_attention import NamedAttention
from keras_vattn.support.validation import one_of

DISTRIBUTIONS = ("weibull", "lognormal")


@keras.saving.register_keras_serializable(package="keras_vattn")
class BayesianAttention(NamedAttention):
    """Bayesian attention module of Fan et al. 2020: weights are normalised Weibull or lognormal draws.

    Equivalent to `keras_vattn.Attention` with the alignment `Weibull(k)` or `LogNormal(sigma)` and a prior. In the
    tables of Fan et al. 2020, L and W mean the distributions `"lognormal"` and `"weibull"`, and F and C mean the priors
    `"fixed"` and `"contextual"`. To set the parameters of the prior, pass a `keras_vattn.GammaPrior` or
    `keras_vattn.LogNormalPrior` as `prior`.

    In the formula, phi are the logits, S are the unnormalised weights, and m is the mean of S. The KL compares the
    posterior q of S with the prior p of S, and is summed over valid queries and keys (section 3.3).

    A weights file identifies layers by their class names. To load the weights of a deterministic model into a Bayesian
    model, build both models with `keras_vattn.Attention`. If the prior has weights, load the file with
    `skip_mismatch=True`, because the file lacks the weights of the prior.

    Formula:
        phi_(t,s) = "score"("query"_t, "key"_s)
        m_(t,s) = "softmax"_s(phi_(t,s)) quad "(normalized)", quad m_(t,s) = exp(phi_(t,s)) quad "(raw)"
        S_(t,s) ~ "Weibull"(k, m_(t,s) / (Gamma(1 + 1/k))) quad "(weibull)"
        S_(t,s) ~ "LogNormal"(log m_(t,s) - sigma^2 / 2, sigma^2) quad "(lognormal)"
        w_(t,s) = S_(t,s) / (sum_(s') S_(t,s')), quad c_t = sum_s w_(t,s) "value"_s
        "loss" = "kl_weight" * "kl_annealing" * 1/B sum_(b,t,s) "KL"(q(S_(t,s)) || p(S_(t,s)))

    Args:
        score: As in `keras_vattn.Attention`. Defaults to `"dot_product"`.
        distribution: `"weibull"` or `"lognormal"`. Defaults to `"weibull"`.
        prior: `"contextual"`, `"fixed"` or a `Prior`. With `None`, only posterior logits add a KL. Defaults to
            `"contextual"`.
        k: Shape parameter of the Weibull distribution. With `"lognormal"`, leave `k` at its default. Defaults to 10.0.
        sigma: Standard deviation of log S for the lognormal. With `"weibull"`, leave `sigma` at its default. Defaults
            to 0.5.
        parameterization, kl_estimator, kl_of: As in `keras_vattn.Weibull`, with the same defaults.
        **kwargs: Other arguments of `keras_vattn.Attention`, such as `dropout` and `kl_weight`. The code of Fan et al.
            2020 uses `kl_reduction="mean"`.

    Call arguments, return values and errors are the same as in `keras_vattn.Attention`. A call returns the context (B,
    T, D). With `return_attention_scores=True`, it also returns the weights (B, T, S).

    Example:

    >>> prior = keras_vattn.GammaPrior(beta=10.0)
    >>> layer = keras_vattn.BayesianAttention(prior=prior, k=20.0)
    >>> query, value = keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 4))
    >>> layer(query, value, training=True).shape, len(layer.losses)
    (TensorShape([2, 3, 4]), 1)
    """

    own_arguments = ("distribution", "k", "sigma", "parameterization", "kl_estimator", "kl_of")

    def __init__(
        self,
        score="dot_product",
        distribution="weibull",
        prior="contextual",
        k=10.0,
        sigma=0.5,
        parameterization="normalized",
        kl_estimator="analytic",
        kl_of="draws",
        **kwargs,
    ):
        self.refuse_fixed(kwargs)
        one_of("distribution", distribution, DISTRIBUTIONS)
        unread, value, default = ("sigma", sigma, 0.5) if distribution == "weibull" else ("k", k, 10.0)
        if value != default:
            raise ValueError(
                f'distribution="{distribution}" does not use `{unread}`: leave it at its default. '
                f"Received: {unread}={value!r}"
            )
        family, parameter = (Weibull, k) if distribution == "weibull" else (LogNormal, sigma)
        alignment = family(parameter, parameterization, kl_estimator, kl_of)
        super().__init__(score, alignment, prior=prior, **kwargs)
        self.distribution = distribution
        self.k, self.sigma = float(k), float(sigma)
        self.parameterization, self.kl_estimator, self.kl_of = parameterization, kl_estimator, kl_of
