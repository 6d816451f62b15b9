from keras import ops

from keras_vattn.support.gradients import custom_gradient
from keras_vattn.support.masks import LOWEST


class Keys:
    """Which entries of an array of logits form a row, and which entries are valid.

    Alignments and priors reduce over "the keys of a query" through such an object alone, so one formula serves padded
    sequences, the heads of a transformer and the edges of a graph. It knows three kinds of arrays: one value for each
    *entry* (a query and a key that it may look at: logits, weights), one for each *row* (a query: a KL, an entropy),
    and one for each *key*.

    | | entry | row | key |
    |---|---|---|---|
    | `keras_vattn.DenseKeys` | (..., T, S) | (..., T) | (..., S) |
    | `keras_vattn.SegmentKeys` | (..., E) | (..., N) | (..., M) |

    A subclass defines `valid`, `sum`, `max`, `any_valid`, `spread` and `per_entry`, and `one_hot` and `average` where
    something calls them. This class makes its other methods of these.

    Attributes:
        valid: Boolean tensor that broadcasts to the entries, `True` where a query may look at a key, or `None` for
            everywhere.

    Example:

    >>> def entropy(keys, logits):  # of each query, whatever its keys are
    ...     return -keys.sum(keys.softmax(logits) * keys.log_softmax(logits))
    >>> entropy(keras_vattn.DenseKeys(), keras.ops.zeros((2, 3, 4))).shape
    TensorShape([2, 3])
    >>> entropy(keras_vattn.SegmentKeys(row_ids=[0, 1, 0], num_rows=2), keras.ops.zeros((3,))).shape
    TensorShape([2])
    """

    valid = None

    def sum(self, x):
        """Sum over the valid entries of each row: entry -> row."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `sum`.")

    def max(self, x):
        """Largest valid entry of each row, float32: entry -> row; -3.4e38 on a row without a valid entry."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `max`.")

    def any_valid(self):
        """Boolean, one for each row: whether it has a valid entry; `None` where every row has one."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `any_valid`.")

    def spread(self, row_value):
        """Return what broadcasts to the entries from one value for each row: row -> entry."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `spread`.")

    def per_entry(self, key_value):
        """Return what broadcasts to the entries from one value for each key: key -> entry."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `per_entry`.")

    def average(self, value):
        """Return the average of vectors over the valid keys of each row, float32: (..., keys, D) -> (..., rows, D)."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `average`.")

    def one_per_key(self, x, like):
        """Return x, a number or what broadcasts to the entries `like`, with an axis of keys to sum over; an x that does
        not depend on the row may have one row for all."""
        return x + ops.zeros_like(like)

    def require_dense(self):
        """Raise ValueError unless a row is one axis, the event of a distribution of whole rows."""
        raise ValueError(
            "The TensorFlow Probability distribution of whole rows needs keras_vattn.DenseKeys. "
            f"Received: {type(self).__name__}"
        )

    def one_hot(self, x):
        """Return float32 1 at the largest valid entry of each row, the first of equal ones, and 0 elsewhere."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `one_hot`.")

    def softmax(self, logits):
        """Softmax over the valid entries of each row in float32; exactly 0 elsewhere, and on rows without a valid
        entry."""

        @custom_gradient
        def weights(logits):
            exponentials = ops.exp(logits - self.spread(self.max(logits)))
            # The exponential of the largest logit is 1, so only a row without a valid entry has a sum below 1.
            weights = exponentials / self.spread(ops.maximum(self.sum(exponentials), 1.0))
            return weights, lambda upstream: weights * (upstream - self.spread(self.sum(weights * upstream)))

        return self.zero_masked(weights(self.mask_out(logits)))

    def log_softmax(self, logits):
        """Logarithm of `softmax` on the valid entries, 0 on the others, which keeps products with a zero weight
        finite."""

        @custom_gradient
        def log_weights(logits):
            shifted = logits - self.spread(self.max(logits))
            log_weights = shifted - self.spread(ops.log(ops.maximum(self.sum(ops.exp(shifted)), 1.0)))
            return log_weights, lambda upstream: upstream - ops.exp(log_weights) * self.spread(self.sum(upstream))

        return self.zero_masked(log_weights(self.mask_out(logits)))

    def count(self, like):
        """Number of valid entries of each row, float32; it broadcasts to the rows of the entries `like`."""
        return self.sum(ops.ones_like(like, "float32"))

    def of_count(self, function, like):
        """Return function(n), one for each row, of its `count` n, a float32 tensor or number."""
        return function(self.count(like))

    def where_valid(self, x, other):
        """Return x with a number in place of the entries that are not valid."""
        return x if self.valid is None else ops.where(self.valid, x, other)

    def zero_masked(self, x):
        """Return x in float32 with 0 in place of the entries that are not valid."""
        return self.where_valid(ops.cast(x, "float32"), 0.0)

    def mask_out(self, logits):
        """Return logits in float32 whose plain softmax gives the entries that are not valid no weight.

        They get the most negative finite number and not -inf: a row without a valid entry would give NaN in value and
        gradient.
        """
        return self.where_valid(ops.cast(logits, "float32"), LOWEST)
