import keras
from keras import ops

from keras_vattn.scores.score import Score
from keras_vattn.support.products import product


@keras.saving.register_keras_serializable(package="keras_vattn")
class DotProduct(Score):
    """Dot-product score, optionally scaled as in the transformer.

    Without scaling, this is the score "dot" of Luong et al. 2015. With scaling, it is the score in eq. 1 of Vaswani et
    al. 2017, and its name is `"scaled_dot_product"`.

    Formula:
        phi_(t,s) = "query"_t^T "key"_s
        phi_(t,s) = ("query"_t^T "key"_s) / sqrt(D) quad "(scaled)"

    Args:
        scaled: Whether to divide by the square root of D. Defaults to `False`.

    Call arguments:
        query: (B, T, D).
        key: (B, S, D).

    Returns:
        Logits (B, T, S).

    Raises:
        ValueError: If query and key differ in width.

    Example:

    >>> score = keras_vattn.DotProduct(scaled=True)
    >>> score(keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 4)))[0, 0, 0]
    <tf.Tensor: shape=(), dtype=float32, numpy=2.0>
    """

    def __init__(self, scaled=False, **kwargs):
        super().__init__(**kwargs)
        self.scaled = scaled

    def build(self, query_shape, key_shape):
        if None not in (query_shape[-1], key_shape[-1]) and query_shape[-1] != key_shape[-1]:
            raise ValueError(
                "A dot-product score needs queries and keys of the same width; "
                "use a bilinear or additive score to compare different widths. "
                f"Received: query_shape={tuple(query_shape)}, key_shape={tuple(key_shape)}"
            )

    def project_keys(self, key):
        return ops.transpose(key, (0, 2, 1))  # (B, D, S)

    def score(self, query, projected_keys):
        if self.scaled:
            query = query * (query.shape[-1] ** -0.5)
        return product(query, projected_keys)

    def get_config(self):
        return {**super().get_config(), "scaled": self.scaled}
