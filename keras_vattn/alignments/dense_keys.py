import tensorflow as tf
from keras import ops

from keras_vattn.alignments.keys import Keys
from keras_vattn.support.masks import LOWEST, both
from keras_vattn.support.products import matmul

# Maximum number of keys for which `of_count` looks up the values of its function in a table.
_LONGEST_TABLE = 4096


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
        """Return `DenseKeys` that also mask the keys whose logit is the most negative finite number."""
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
        # There are only S + 1 possible counts, so evaluate the function once for each count, not for every row.
        counts = [num_keys] if self.valid is None else range(num_keys + 1)
        with tf.init_scope():
            table = function(tf.constant(counts, "float32")).numpy()
        return table[0] if self.valid is None else tf.gather(table, ops.cast(self.count(like), "int64"))

    def _weights(self, num_keys):
        """Return the mask in float32, broadcast to `num_keys` along the last axis."""
        valid = ops.cast(self.valid, "float32")
        return ops.broadcast_to(valid, (*ops.shape(valid)[:-1], num_keys))

    def softmax(self, logits):
        # Unlike keras.ops.softmax, this function accepts a single key without a warning.
        return self.where_valid(tf.nn.softmax(self.mask_out(logits)), 0.0)

    def log_softmax(self, logits):
        return self.where_valid(ops.log_softmax(self.mask_out(logits), axis=-1), 0.0)

    def average(self, value):
        """Average vectors over the valid keys of each row: (B, S, D) -> (B, T or 1, D), float32."""
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
        # `ops.argmax` is slow on a GPU: it detects -0.0 with int32 operations, which TensorFlow runs on the CPU.
        return self.zero_masked(ops.one_hot(tf.argmax(x, axis=-1), ops.shape(x)[-1], dtype="float32"))
