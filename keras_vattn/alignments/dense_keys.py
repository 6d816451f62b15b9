import tensorflow as tf
from keras import ops


class DenseKeys:
    """Says which entries of a (B, T, S) tensor belong together, those of one row, and which of them are valid.

    Alignments reduce over "the keys of a query" through this object alone, so one formula serves padded sequences and,
    with another such object, edge lists.

    Args:
        mask: Boolean tensor that broadcasts to (B, T, S), `True` where a query may look at a key, or `None` for
            everywhere.

    Example:

    >>> keys = keras_vattn.DenseKeys(keras.ops.convert_to_tensor([[[True, True, False]]]))
    >>> keys.softmax(keras.ops.zeros((1, 1, 3)))
    <tf.Tensor: shape=(1, 1, 3), dtype=float32, numpy=array([[[0.5, 0.5, 0. ]]], dtype=float32)>
    """

    def __init__(self, mask=None):
        self.mask = mask

    def sum(self, x):
        """Sum over the valid keys of each row, (B, T, S) -> (B, T, 1)."""
        if self.mask is not None:
            x = ops.where(self.mask, x, ops.zeros_like(x))
        return ops.sum(x, axis=-1, keepdims=True)

    def softmax(self, logits):
        """Softmax over the valid keys of each row in float32; exactly 0 elsewhere, and on rows without a valid key."""
        # keras.ops.softmax warns where there is one key, which is a sequence of length one and no mistake.
        logits = ops.cast(logits, "float32")
        if self.mask is None:
            return tf.nn.softmax(logits)
        weights = tf.nn.softmax(self.mask_out(logits))
        return ops.where(self.mask, weights, ops.zeros_like(weights))

    def log_softmax(self, logits):
        """Logarithm of `softmax` on the valid keys, 0 on the others, which keeps products with a zero weight finite."""
        logits = ops.cast(logits, "float32")
        if self.mask is None:
            return ops.log_softmax(logits, axis=-1)
        log_weights = ops.log_softmax(self.mask_out(logits), axis=-1)
        return ops.where(self.mask, log_weights, ops.zeros_like(log_weights))

    def zero_masked(self, x):
        """Return x in float32 with 0 in place of the entries that are not valid."""
        x = ops.cast(x, "float32")
        return x if self.mask is None else ops.where(self.mask, x, ops.zeros_like(x))

    def one_hot(self, logits):
        """Return 1 at the largest valid entry of each row, the first of equals, and 0 elsewhere."""
        logits = self.mask_out(logits)
        one_hot = ops.one_hot(ops.argmax(logits, axis=-1), ops.shape(logits)[-1], dtype="float32")
        return self.zero_masked(one_hot)

    def any_valid(self):
        """Boolean (B, T or 1), whether the row has a valid key; `None` without a mask."""
        return None if self.mask is None else ops.any(self.mask, axis=-1)

    def mask_out(self, logits):
        """Return logits whose plain softmax gives the entries that are not valid no weight.

        They get the most negative finite number and not -inf: a row without a valid key would give NaN in value and
        gradient.
        """
        logits = ops.cast(logits, "float32")
        if self.mask is None:
            return logits
        return ops.where(self.mask, logits, ops.full_like(logits, -3.4e38))
