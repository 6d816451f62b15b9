import keras
from keras import ops

from keras_vattn.scores.score import Score
from keras_vattn.support.masks import LOWEST
from keras_vattn.support.products import product
from keras_vattn.support.validation import positive_integer


@keras.saving.register_keras_serializable(package="keras_vattn")
class Location(Score):
    """Location-based score, which depends on the query but not on the keys (Luong et al. 2015, eq. 8).

    W has one row for each of `max_length` positions. For fewer keys, the score uses the first rows. For more keys, the
    score raises a ValueError. In a graph with an unknown number of keys, the score masks the keys past `max_length`
    instead. Luong et al. 2015 also ignore the last words of long sentences.

    Formula:
        phi_(t,s) = (W "query"_t)_s

    Args:
        max_length: Number of positions. If `None`, `build` uses the number of keys it receives. Defaults to `None`.
        kernel_initializer: Initializer of the transposed W, of shape (Dq, max_length). Defaults to `"glorot_uniform"`.

    Call arguments:
        query: (B, T, Dq).
        key: (B, S, Dk). Only S is used.

    Returns:
        Logits (B, T, S), float32.

    Raises:
        ValueError: If `max_length` is not a positive integer or `None`.
        ValueError: If S is larger than `max_length`.
        ValueError: If `max_length` is `None` and S is unknown.

    Example:

    >>> query, key = keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 6))
    >>> keras_vattn.Location(max_length=9)(query, key).shape
    TensorShape([2, 3, 5])
    """

    hides_keys = True

    # Keys may have any width: the score uses only the number of keys.
    width_arguments = ("query",)

    def __init__(self, max_length=None, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.max_length = positive_integer("max_length", max_length, optional=True)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape, key_shape):
        length = self.max_length or key_shape[1]
        if length is None:
            raise ValueError(
                "A location score needs `max_length` if the number of keys is unknown. "
                f"Received: max_length=None, key_shape={tuple(key_shape)}"
            )
        self.kernel = self.add_weight(
            name="kernel", shape=(query_shape[-1], length), initializer=self.kernel_initializer
        )
        self._check(key_shape)

    def project_keys(self, key):
        """Return one column of the kernel for each key, (Dq, S). Keys past `max_length` get the last column."""
        self._check(key.shape)
        columns = ops.minimum(ops.arange(ops.shape(key)[1]), self.kernel.shape[1] - 1)
        return ops.cast(ops.take(self.kernel, columns, axis=1), key.dtype)

    def score(self, query, projected_keys):
        logits = ops.cast(product(query, projected_keys), "float32")
        return ops.where(ops.arange(ops.shape(logits)[-1]) < self.kernel.shape[1], logits, LOWEST)

    def _check(self, key_shape):
        if key_shape[1] is not None and key_shape[1] > self.kernel.shape[1]:
            raise ValueError(
                "The memory is longer than `max_length`, the limit of the location score. "
                f"Received: key.shape={tuple(key_shape)}, max_length={self.kernel.shape[1]}"
            )

    def get_config(self):
        return {
            **super().get_config(),
            "max_length": self.max_length,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
