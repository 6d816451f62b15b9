from operator import attrgetter

import keras

from keras_vattn.alignments import Dirichlet
from keras_vattn.layers.named_attention import NamedAttention


@keras.saving.register_keras_serializable(package="keras_vattn")
class DirichletAttention(NamedAttention):
    """Relaxed latent alignment of Deng et al. 2018: the weights are drawn from a Dirichlet distribution.

    Equivalent to `Attention(alignment=Dirichlet())`. The scores define a Dirichlet p:

    - Without posterior logits, training draws the weights from p.
    - With posterior logits, which define a Dirichlet q, training draws the weights from q. The layer adds the KL from q
      to p with `add_loss` (Deng et al. 2018, algorithm 2). For prediction, omit the posterior logits.

    A randomly initialised model that is trained with q tends to learn uniform attention weights. So let the first
    `warm_start_steps` training calls draw from p, with a KL of 0 (the Jensen bound of Deng et al. 2018).
    `keras_vattn.Dirichlet` explains the function "clamp".

    Formula:
        p(w_t) = "Dirichlet"(exp("clamp"(phi_t))), quad phi_(t,s) = "score"("query"_t, "key"_s)
        w_t ~ q(w_t) = "Dirichlet"(exp("clamp"(hat(phi)_t))), quad hat(phi) = "posterior_logits"
        c_t = sum_s w_(t,s) "value"_s
        "loss" = "kl_weight" * "kl_annealing" * 1/B sum_(b,t) "KL"(q(w_t) || p(w_t))

    Args:
        score: As in `keras_vattn.Attention`. Defaults to `"dot_product"`.
        prior: `"fixed"`, `"contextual"` or a `Prior`. With `None`, only posterior logits add a KL. Defaults to `None`.
        min_log_concentration: Lower bound of log alpha. Defaults to -10.0.
        max_log_concentration: Upper bound of log alpha. Defaults to 10.0.
        **kwargs: Other arguments of `keras_vattn.Attention`, such as `dropout`, `warm_start_steps` and `kl_weight`.

    Call arguments, return values and errors are the same as in `keras_vattn.Attention`. A call returns the context (B,
    T, D). With `return_attention_scores=True`, it also returns the weights (B, T, S).

    Example:

    >>> layer = keras_vattn.DirichletAttention(warm_start_steps=1000)
    >>> query, value = keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 4))
    >>> logits = keras.ops.zeros((2, 3, 5))
    >>> attended = layer(query, value, posterior_logits=logits, training=True)
    >>> attended.shape, len(layer.losses)
    (TensorShape([2, 3, 4]), 1)
    """

    own_arguments = ("min_log_concentration", "max_log_concentration")
    min_log_concentration = property(attrgetter("alignment.min_log_concentration"))
    max_log_concentration = property(attrgetter("alignment.max_log_concentration"))

    def __init__(
        self, score="dot_product", prior=None, min_log_concentration=-10.0, max_log_concentration=10.0, **kwargs
    ):
        self.refuse_fixed(kwargs)
        alignment = Dirichlet(min_log_concentration, max_log_concentration)
        super().__init__(score, alignment, prior=prior, **kwargs)
