from operator import attrgetter

import keras

from keras_vattn.contexts import GaussianContext
from keras_vattn.layers.named_attention import NamedAttention


@keras.saving.register_keras_serializable(package="keras_vattn")
class GaussianAttention(NamedAttention):
    """Variational attention of Bahuleyan et al. 2018: softmax weights, and a Gaussian around the attended vector.

    Equivalent to `Attention(context=GaussianContext(context_prior))`. The layer sums the KL over unmasked queries and
    dimensions (eq. 8), and adds the sum with `add_loss`. `keras_vattn.GaussianContext` documents the formula of sigma.

    In Bahuleyan et al. 2018, the model VAttn-0 has the prior `"standard"`. The model VAttn-h_bar has the prior
    `"mean"`, whose mean is the average of the valid values.

    Formula:
        w_(t,s) = "softmax"_s("score"("query"_t, "key"_s)), quad mu_t = sum_s w_(t,s) "value"_s
        c_t ~ q(c_t) = "Normal"(mu_t, "diag"(sigma_t^2))
        p(c_t) = "Normal"(0, I) quad "(standard)", quad p(c_t) = "Normal"(bar("value")_t, I) quad "(mean)"
        "loss" = "kl_weight" * "kl_annealing" * 1/B sum_(b,t) "KL"(q(c_t) || p(c_t))

    Args:
        score: As in `keras_vattn.Attention`. Defaults to `"dot_product"`.
        context_prior: `"standard"` or `"mean"`. Defaults to `"standard"`.
        hidden_units: Width of the tanh layer for log sigma; `None` for the width of the values. Defaults to `None`.
        temperature: Factor that multiplies sigma in samples at inference. Defaults to 1.0.
        **kwargs: Other arguments of `keras_vattn.Attention`, such as `kl_weight` (0.1 in Bahuleyan et al. 2018).

    Call arguments, return values and errors are the same as in `keras_vattn.Attention`. A call returns the context (B,
    T, D). With `return_attention_scores=True`, it also returns the weights (B, T, S).

    Example:

    >>> layer = keras_vattn.GaussianAttention("bilinear", context_prior="mean")
    >>> layer(keras.ops.ones((2, 3, 8)), keras.ops.ones((2, 5, 6)), training=True).shape
    TensorShape([2, 3, 6])
    """

    fixed_arguments = ("alignment", "context", "prior", "warm_start_steps")
    own_arguments = ("context_prior", "hidden_units", "temperature")
    context_prior = property(attrgetter("context.prior"))
    hidden_units = property(attrgetter("context.hidden_units"))
    temperature = property(attrgetter("context.temperature"))

    def __init__(self, score="dot_product", context_prior="standard", hidden_units=None, temperature=1.0, **kwargs):
        if "prior" in kwargs:
            raise ValueError(f"Set the prior of the context with `context_prior`. Received: prior={kwargs['prior']!r}")
        self.refuse_fixed(kwargs)
        parameters = {"hidden_units": hidden_units, "temperature": temperature}
        context = GaussianContext(context_prior, **parameters, dtype=kwargs.get("dtype"), name="context")
        super().__init__(score, context=context, **kwargs)
