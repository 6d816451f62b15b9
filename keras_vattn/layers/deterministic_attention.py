import keras

from keras_vattn.layers.named_attention import NamedAttention


@keras.saving.register_keras_serializable(package="keras_vattn")
class DeterministicAttention(NamedAttention):
    """Attention without a random variable (Bahdanau et al. 2015; Luong et al. 2015).

    Formula:
        w_(t,s) = "softmax"_s("score"("query"_t, "key"_s)), quad c_t = sum_s w_(t,s) "value"_s

    Args:
        score: As in `keras_vattn.Attention`. Defaults to `"dot_product"`.
        **kwargs: Other arguments of `keras_vattn.Attention`, such as `dropout` and `seed`, but not the KL arguments.

    Call arguments, return values and errors are the same as in `keras_vattn.Attention`. A call returns the context (B,
    T, D). With `return_attention_scores=True`, it also returns the weights (B, T, S).

    Example:

    >>> layer = keras_vattn.DeterministicAttention(score="additive")
    >>> layer(keras.ops.ones((2, 3, 8)), keras.ops.ones((2, 5, 6))).shape
    TensorShape([2, 3, 6])
    """

    fixed_arguments = ("alignment", "context", "prior", "warm_start_steps", "kl_weight", "kl_annealing", "kl_reduction")

    def __init__(self, score="dot_product", **kwargs):
        self.refuse_fixed(kwargs)
        super().__init__(score=score, **kwargs)
