import keras
from keras import ops

from keras_vattn.scores.score import Score
from keras_vattn.support.products import matmul, product


@keras.saving.register_keras_serializable(package="keras_vattn")
class Bilinear(Score):
    """Bilinear score, Luong's "general" (Luong et al. 2015, section 3.1; Bahuleyan et al. 2018, below eq. 4).

    Formula:
        phi_(t,s) = "query"_t^T W "key"_s

    Args:
        kernel_initializer: Initializer of the transpose of W, (Dk, Dq). Defaults to `"glorot_uniform"`.

    Call arguments:
        query: (B, T, Dq).
        key: (B, S, Dk).

    Returns:
        Logits (B, T, S).

    Example:

    >>> keras_vattn.Bilinear()(keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 6))).shape
    TensorShape([2, 3, 5])
    """

    def __init__(self, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape, key_shape):
        self.kernel = self.add_weight(
            name="kernel", shape=(key_shape[-1], query_shape[-1]), initializer=self.kernel_initializer
        )

    def project_keys(self, key):
        return ops.transpose(matmul(key, ops.cast(self.kernel, key.dtype)), (0, 2, 1))  # (B, Dq, S)

    def score(self, query, projected_keys):
        return product(query, projected_keys)

    def get_config(self):
        return {
            **super().get_config(),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
