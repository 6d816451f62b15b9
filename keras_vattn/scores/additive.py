import keras
from keras import ops

from keras_vattn.scores.score import Score
from keras_vattn.support.products import matmul, product
from keras_vattn.support.validation import positive_integer


@keras.saving.register_keras_serializable(package="keras_vattn")
class Additive(Score):
    """Additive score, a multilayer perceptron (Bahdanau et al. 2015, appendix A.1.2).

    With `use_bias=False`, this score is `"concat"` (Luong et al. 2015, section 3.1), a matrix [W_1 W_2] times the
    concatenated query and key.

    Formula:
        phi_(t,s) = v^T tanh(W_1 "query"_t + W_2 "key"_s + b)

    Args:
        units: Width of the hidden layer, an integer, or `None` for the width of the query. Defaults to `None`.
        use_bias: Whether to add b. Defaults to `True`.
        kernel_initializer: Initializer of W_1 (Dq, units), W_2 (Dk, units) and v (units,). Defaults to
            `"glorot_uniform"`.

    Call arguments:
        query: (B, T, Dq).
        key: (B, S, Dk).

    Returns:
        Logits (B, T, S). The computation needs memory for B * T * S * units values.

    Raises:
        ValueError: If `units` is not a positive integer or `None`.

    Example:

    >>> query, key = keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 6))
    >>> keras_vattn.Additive(units=8)(query, key).shape
    TensorShape([2, 3, 5])
    """

    def __init__(self, units=None, use_bias=True, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.units = positive_integer("units", units, optional=True)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape, key_shape):
        units = self.units or query_shape[-1]
        self.query_kernel = self.add_weight(
            name="query_kernel", shape=(query_shape[-1], units), initializer=self.kernel_initializer.clone()
        )
        self.key_kernel = self.add_weight(
            name="key_kernel", shape=(key_shape[-1], units), initializer=self.kernel_initializer.clone()
        )
        self.bias = self.add_weight(name="bias", shape=(units,), initializer="zeros") if self.use_bias else None
        self.scale = self.add_weight(name="scale", shape=(units, 1), initializer=self.kernel_initializer.clone())

    def project_keys(self, key):
        projected = matmul(key, ops.cast(self.key_kernel, key.dtype))  # (B, S, units)
        return projected if self.bias is None else projected + ops.cast(self.bias, key.dtype)

    def score(self, query, projected_keys):
        projected_query = ops.expand_dims(product(query, self.query_kernel), axis=2)
        hidden = ops.tanh(projected_query + ops.expand_dims(projected_keys, axis=1))  # (B, T, S, units)
        return ops.squeeze(product(hidden, self.scale), axis=-1)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
