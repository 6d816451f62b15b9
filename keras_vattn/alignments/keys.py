from keras import ops

from keras_vattn.support.gradients import custom_gradient
from keras_vattn.support.masks import LOWEST


class Keys:
    """Defines which logits belong to the same query, and which logits are valid.

    An *entry* is a pair of a query and a key. A *row* contains all entries of one query. Alignments and priors use only
    the methods of this class to reduce over the keys. The same formula then works for padded sequences, transformer
    heads and graph edges. Arrays have one value per entry (logits, weights), per row (a KL, an entropy), or per key:

    | | entry | row | key |
    |---|---|---|---|
    | `keras_vattn.DenseKeys` | (..., T, S) | (..., T) | (..., S) |
    | `keras_vattn.SegmentKeys` | (..., E) | (..., N) | (..., M) |

    A subclass defines `valid`, `sum`, `max`, `any_valid`, `spread` and `per_entry`, and if needed `one_hot` and
    `average`. The other methods of this class call these methods.

    Attributes:
        valid: Boolean tensor that broadcasts to the entries, `True` where a query may attend to a key. `None` allows
            all keys.

    Example:

    >>> def entropy(keys, logits):  # one value for each query
    ...     return -keys.sum(keys.softmax(logits) * keys.log_softmax(logits))
    >>> entropy(keras_vattn.DenseKeys(), keras.ops.zeros((2, 3, 4))).shape
    TensorShape([2, 3])
    >>> edges = keras_vattn.SegmentKeys(row_ids=[0, 1, 0], num_rows=2)
    >>> entropy(edges, keras.ops.zeros((3,))).shape
    TensorShape([2])
    """

    valid = None

    def sum(self, x):
        """Return the sum of x over the valid entries of each row."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `sum`.")

    def max(self, x):
        """Return the float32 maximum of x over the valid entries of each row, or -3.4e38 if none is valid."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `max`.")

    def any_valid(self):
        """Return whether each row has a valid entry, a boolean per row. `None` means that every row has one."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `any_valid`.")

    def spread(self, row_value):
        """Return the value of each entry's row. The result broadcasts to the shape of the entries."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `spread`.")

    def per_entry(self, key_value):
        """Return the value of each entry's key. The result broadcasts to the shape of the entries."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `per_entry`.")

    def average(self, value):
        """Return the mean of the valid keys' vectors (..., keys, D) for each row, float32 (..., rows, D)."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `average`.")

    def one_per_key(self, x, like):
        """Broadcast x, a number or an array, to the shape of `like`. The result may contain only one row."""
        return x + ops.zeros_like(like)

    def require_dense(self):
        """Raise ValueError unless the keys are the last axis of the logits."""
        raise ValueError(
            "A TensorFlow Probability distribution over all keys of a query needs keras_vattn.DenseKeys. "
            f"Received: {type(self).__name__}"
        )

    def one_hot(self, x):
        """Return 1 at the largest valid entry of each row (the first in a tie) and 0 elsewhere, in float32."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `one_hot`.")

    def softmax(self, logits):
        """Return the float32 softmax over the valid entries of each row. Invalid entries are exactly 0."""

        @custom_gradient
        def weights(logits):
            exponentials = ops.exp(logits - self.spread(self.max(logits)))
            # The sum is below 1 only in a row without a valid entry, where `maximum` prevents a division by 0.
            weights = exponentials / self.spread(ops.maximum(self.sum(exponentials), 1.0))
            return weights, lambda upstream: weights * (upstream - self.spread(self.sum(weights * upstream)))

        return self.zero_masked(weights(self.mask_out(logits)))

    def log_softmax(self, logits):
        """Return the float32 log of the softmax. Invalid entries are 0, not -inf."""

        @custom_gradient
        def log_weights(logits):
            shifted = logits - self.spread(self.max(logits))
            log_weights = shifted - self.spread(ops.log(ops.maximum(self.sum(ops.exp(shifted)), 1.0)))
            return log_weights, lambda upstream: upstream - ops.exp(log_weights) * self.spread(self.sum(upstream))

        return self.zero_masked(log_weights(self.mask_out(logits)))

    def count(self, like):
        """Return the number of valid entries of each row in float32. `like` has the shape of the entries."""
        return self.sum(ops.ones_like(like, "float32"))

    def of_count(self, function, like):
        """Return `function(count)` for the number of valid entries of each row: a float32 tensor or a number."""
        return function(self.count(like))

    def where_valid(self, x, other):
        """Return x with `other`, a number, at the invalid entries."""
        return x if self.valid is None else ops.where(self.valid, x, other)

    def zero_masked(self, x):
        """Return x in float32 with 0 at the invalid entries."""
        return self.where_valid(ops.cast(x, "float32"), 0.0)

    def mask_out(self, logits):
        """Return float32 logits with the lowest finite float32 at the invalid entries."""
        # With -inf, the softmax of a row without a valid entry would be NaN.
        return self.where_valid(ops.cast(logits, "float32"), LOWEST)
