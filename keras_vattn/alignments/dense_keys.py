import tensorflow as tf
from keras import ops

from keras_vattn.alignments.keys import Keys
from keras_vattn.support.masks import LOWEST, both
from keras_vattn.support.products import matmul

_LONGEST_TABLE = 4096  # keys


class DenseKeys(Keys):
    """Keys for dense logits (..., T, S): every query has one logit for each of the S keys.

    Args:
        mask: Boolean tensor that broadcasts to (..., T, S), `True` where a query may attend to a key. `None` allows all
            keys.

    Example:

    >>> keys = keras_vattn.DenseKeys(keras.ops.convert_to_tensor([[[True, True, False]]]))
    >>> keys.softmax(keras.ops.zeros((1, 1, 3)))
    <tf.Tensor: shape=(1, 1, 3), dtype=float32, numpy=array([[[0.5, 0.5, 0. ]]], dtype=float32)>
    """

    def __init__(self, mask=None):
        self.valid = mask

    def without_hidden(self, logits):
        """Return `DenseKeys` that also mask keys whose logit is the lowest finite float32."""
        return DenseKeys(both(self.valid, ops.logical_not(ops.cast(logits, "float32") <= LOWEST)))

    def sum(self, x):
        return ops.sum(self.where_valid(x, 0), axis=-1)

    def max(self, x):
        return ops.max(self.mask_out(x), axis=-1)

    def any_valid(self):
        return None if self.valid is None else ops.any(self.valid, axis=-1)

    def spread(self, row_value):
        return ops.expand_dims(row_value, -1)

    def per_entry(self, key_value):
        return ops.expand_dims(key_value, -2)

    def count(self, like):
        num_keys = ops.shape(like)[-1]
        return ops.cast(num_keys, "float32") if self.valid is None else ops.sum(self._weights(num_keys), axis=-1)

    def of_count(self, function, like):
        num_keys = like.shape[-1]
        if num_keys is None or num_keys > _LONGEST_TABLE:
            return super().of_count(function, like)
        # Without this table, `function` would be evaluated for every row, which is slower.
        counts = [num_keys] if self.valid is None else range(num_keys + 1)
        with tf.init_scope():
            table = function(tf.constant(counts, "float32")).numpy()
        return table[0] if self.valid is None else tf.gather(table, ops.cast(self.count(like), "int64"))

    def _weights(self, num_keys):
        valid = ops.cast(self.valid, "float32")
        return ops.broadcast_to(valid, (*ops.shape(valid)[:-1], num_keys))

    def softmax(self, logits):
        # `keras.ops.softmax` would warn about a single key.
        return self.where_valid(tf.nn.softmax(self.mask_out(logits)), 0.0)

    def log_softmax(self, logits):
        return self.where_valid(ops.log_softmax(self.mask_out(logits), axis=-1), 0.0)

    def average(self, value):
        """Return the mean of the valid keys' vectors (B, S, D) for each row, float32 (B, T or 1, D)."""
        value = ops.cast(value, "float32")
        if self.valid is None:
            return ops.divide_no_nan(ops.sum(value, axis=-2, keepdims=True), self.count(value[..., 0]))
        weights = self._weights(ops.shape(value)[-2])
        return ops.divide_no_nan(matmul(weights, value), ops.sum(weights, axis=-1, keepdims=True))

    def one_per_key(self, x, like):
        return x + ops.zeros_like(like[..., :1, :])

    def require_dense(self):
        pass

    def one_hot(self, x):
        x = self.mask_out(x)
        if x.shape[-1] == 0:
            return x
        # `ops.argmax` would be slow on a GPU, because TensorFlow runs some of its operations on the CPU.
        return self.zero_masked(ops.one_hot(tf.argmax(x, axis=-1), ops.shape(x)[-1], dtype="float32"))
