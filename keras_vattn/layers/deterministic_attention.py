import keras

from keras_vattn.layers.attention import Attention
from keras_vattn.support.validation import refuse


@keras.saving.register_keras_serializable(package="keras_vattn")
class DeterministicAttention(Attention):
    """Attention without a random variable (Bahdanau et al. 2015; Luong et al. 2015).

    Formula:
        w_(t,s) = "softmax"_s("score"("query"_t, "key"_s)), quad c_t = sum_s w_(t,s) "value"_s

    Args:
        score: As in `keras_vattn.Attention`. Defaults to `"dot_product"`.
        dropout: Rate of dropout on the weights in training. Defaults to 0.0.
        seed: Integer or `None`, for the dropout. Defaults to `None`.
        **kwargs: `query_chunk_size` as of `keras_vattn.Attention`, and the arguments of every layer.

    Call arguments:
        The same as `keras_vattn.Attention`.

    Returns:
        The context (B, T, D), and the weights (B, T, S) with `return_attention_scores=True`.

    Raises:
        ValueError: As `keras_vattn.Attention`.

    Example:

    >>> layer = keras_vattn.DeterministicAttention(score="additive")
    >>> layer(keras.ops.ones((2, 3, 8)), keras.ops.ones((2, 5, 6))).shape
    TensorShape([2, 3, 6])
    """

    fixed_arguments = ("alignment", "context", "prior", "warm_start_steps", "kl_weight", "kl_annealing", "kl_reduction")

    def __init__(self, score="dot_product", dropout=0.0, seed=None, **kwargs):
        refuse("DeterministicAttention", kwargs, self.fixed_arguments)
        super().__init__(score=score, dropout=dropout, seed=seed, **kwargs)
