import keras
from keras import ops

from keras_vattn.scores.score import Score
from keras_vattn.support.masks import LOWEST
from keras_vattn.support.products import product
from keras_vattn.support.validation import positive_integer


@keras.saving.register_keras_serializable(package="keras_vattn")
class Location(Score):
    """Location-based score: the query alone says where to look, whatever the keys are (Luong et al. 2015, eq. 8).

    W has one row for each position. A shorter memory takes the first rows. A longer one is an error where its length is
    known before the call runs, as it always is eagerly; in a graph of unknown lengths no query sees what is past
    `max_length`, as in the paper, which ignores words near the end of long sentences.

    Formula:
        phi_(t,s) = (W "query"_t)_s

    Args:
        max_length: Number of positions, or `None` for the number of keys that it is built for. Defaults to `None`.
        kernel_initializer: Initializer of W, (Dq, max_length). Defaults to `"glorot_uniform"`.

    Call arguments:
        query: (B, T, Dq).
        key: (B, S, Dk); only S is read.

    Returns:
        Logits (B, T, S), float32.

    Raises:
        ValueError: If `max_length` is not a positive integer or `None`, S is larger, or neither is known.

    Example:

    >>> keras_vattn.Location(max_length=9)(keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 6))).shape
    TensorShape([2, 3, 5])
    """

    hides_keys = True

    # The keys give their number alone.
    width_arguments = ("query",)

    def __init__(self, max_length=None, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.max_length = positive_integer("max_length", max_length, optional=True)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape, key_shape):
        length = self.max_length or key_shape[1]
        if length is None:
            raise ValueError(
                "A location score of keys of unknown number needs its `max_length`. "
                f"Received: max_length=None, key_shape={tuple(key_shape)}"
            )
        self.kernel = self.add_weight(
            name="kernel", shape=(query_shape[-1], length), initializer=self.kernel_initializer
        )
        self._check(key_shape)

    def project_keys(self, key):
        """Return the columns of the kernel for these keys, (Dq, S); past the end the last one is repeated."""
        self._check(key.shape)
        columns = ops.minimum(ops.arange(ops.shape(key)[1]), self.kernel.shape[1] - 1)
        return ops.cast(ops.take(self.kernel, columns, axis=1), key.dtype)

    def score(self, query, projected_keys):
        logits = ops.cast(product(query, projected_keys), "float32")
        return ops.where(ops.arange(ops.shape(logits)[-1]) < self.kernel.shape[1], logits, LOWEST)

    def _check(self, key_shape):
        if key_shape[1] is not None and key_shape[1] > self.kernel.shape[1]:
            raise ValueError(
                "A location score has one row for each of `max_length` positions: this memory is longer. "
                f"Received: key.shape={tuple(key_shape)}, max_length={self.kernel.shape[1]}"
            )

    def get_config(self):
        return {
            **super().get_config(),
            "max_length": self.max_length,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
