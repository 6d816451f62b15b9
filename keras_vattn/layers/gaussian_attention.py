import keras

from keras_vattn.contexts import GaussianContext
from keras_vattn.layers.attention import Attention
from keras_vattn.support.validation import refuse


@keras.saving.register_keras_serializable(package="keras_vattn")
class GaussianAttention(Attention):
    """Variational attention of Bahuleyan et al. 2018: softmax weights, and a Gaussian around the attended vector.

    `Attention(context=GaussianContext(context_prior))` under its own name. The prior `"standard"` is the paper's
    VAttn-0, `"mean"`, at the average of the valid values, its VAttn-h_bar. The KL, summed over steps and dimensions
    under the query mask (eq. 8), arrives through `add_loss`. `keras_vattn.GaussianContext` has the formula of sigma.

    Formula:
        w_(t,s) = "softmax"_s("score"("query"_t, "key"_s)), quad mu_t = sum_s w_(t,s) "value"_s
        c_t ~ q(c_t) = "Normal"(mu_t, "diag"(sigma_t^2))
        p(c_t) = "Normal"(0, I) quad "(standard)", quad p(c_t) = "Normal"(bar("value")_t, I) quad "(mean)"
        "loss" = "kl_weight" * "kl_annealing" * 1/B sum_(b,t) "KL"(q(c_t) || p(c_t))

    Args:
        score: As in `keras_vattn.Attention`. Defaults to `"dot_product"`.
        context_prior: `"standard"` or `"mean"`. Defaults to `"standard"`.
        hidden_units: Width of the tanh layer of log sigma; `None` for the width of the values. Defaults to `None`.
        temperature: Factor on sigma in draws at inference. Defaults to 1.0.
        kl_weight: gamma_a of eq. 8; the paper uses 0.1. Defaults to 1.0.
        kl_annealing: `None` or a schedule, lambda_KL of eq. 8. Defaults to `None`.
        kl_reduction: `"sum"`, `"query_mean"` or `"mean"`. Defaults to `"sum"`.
        dropout: Rate of dropout on the weights in training. Defaults to 0.0.
        seed: Integer or `None`. Defaults to `None`.
        **kwargs: `query_chunk_size` as of `keras_vattn.Attention`, and the arguments of every layer.

    Call arguments:
        The same as `keras_vattn.Attention`.

    Returns:
        The context (B, T, D), and the weights (B, T, S) with `return_attention_scores=True`.

    Raises:
        ValueError: As `keras_vattn.Attention` and `keras_vattn.GaussianContext`.

    Example:

    >>> layer = keras_vattn.GaussianAttention(score="bilinear", context_prior="mean", kl_weight=0.1)
    >>> layer(keras.ops.ones((2, 3, 8)), keras.ops.ones((2, 5, 6)), training=True).shape
    TensorShape([2, 3, 6])
    """

    fixed_arguments = ("alignment", "context", "prior", "warm_start_steps")
    own_arguments = ("context_prior", "hidden_units", "temperature")

    def __init__(
        self,
        score="dot_product",
        context_prior="standard",
        hidden_units=None,
        temperature=1.0,
        kl_weight=1.0,
        kl_annealing=None,
        kl_reduction="sum",
        dropout=0.0,
        seed=None,
        **kwargs,
    ):
        if "prior" in kwargs:
            raise ValueError(f"The prior of a Gaussian context is `context_prior`. Received: prior={kwargs['prior']!r}")
        refuse("GaussianAttention", kwargs, self.fixed_arguments)
        context = GaussianContext(
            prior=context_prior,
            hidden_units=hidden_units,
            temperature=temperature,
            dtype=kwargs.get("dtype"),
            name="context",
        )
        super().__init__(
            score=score,
            context=context,
            kl_weight=kl_weight,
            kl_annealing=kl_annealing,
            kl_reduction=kl_reduction,
            dropout=dropout,
            seed=seed,
            **kwargs,
        )

    @property
    def context_prior(self):
        return self.context.prior

    @property
    def hidden_units(self):
        return self.context.hidden_units

    @property
    def temperature(self):
        return self.context.temperature
