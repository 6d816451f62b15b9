import math

import tensorflow as tf
from keras import ops

from keras_vattn.alignments.keys import Keys
from keras_vattn.support.masks import check_shape
from keras_vattn.support.segments import gather, segment_sum


class SegmentKeys(Keys):
    """Keys for sparse logits (..., E), such as one logit for each of the E edges of a graph.

    An entry is a pair of a query and a key. A row contains the entries of one query. Entry e belongs to the row
    `row_ids[e]` and the key `key_ids[e]`. The entries may be in any order. Memory grows with E, not with the number of
    rows times the number of keys. Leading axes, such as heads, share the ids.

    Args:
        row_ids: Integers (E,) in [0, num_rows): the row of each entry.
        num_rows: N, an integer or a scalar tensor. A row may be empty.
        key_ids: Integers (E,): the key of each entry. Only `per_entry` and `average` need them. Defaults to `None`.
        mask: Boolean tensor that broadcasts to (..., E), `False` for padding, or `None`. Defaults to `None`.

    Raises:
        ValueError: If the ids are not integers or differ in length. The range of the ids is not checked.

    Example:

    >>> keys = keras_vattn.SegmentKeys(row_ids=[0, 1, 0], num_rows=2, key_ids=[0, 0, 1])
    >>> keys.softmax(keras.ops.zeros((3,)))
    <tf.Tensor: shape=(3,), dtype=float32, numpy=array([0.5, 1. , 0.5], dtype=float32)>
    """

    def __init__(self, row_ids, num_rows, key_ids=None, mask=None):
        self.row_ids = _ids("row_ids", row_ids)
        self.key_ids = None if key_ids is None else _ids("key_ids", key_ids)
        if self.key_ids is not None:
            check_shape("key_ids", self.key_ids, tuple(self.row_ids.shape), "(E,)")
        self.num_rows = num_rows
        self.valid = mask

    def sum(self, x):
        return self._reduce(segment_sum, self.where_valid(x, 0))

    def max(self, x):
        return self._reduce(tf.math.unsorted_segment_max, self.mask_out(x))

    def any_valid(self):
        return self.count(None) > 0.0

    def count(self, like):
        entries = ops.ones_like(self.row_ids, "float32")
        if self.valid is not None:
            entries = entries + ops.zeros_like(self.valid, "float32")
        return self.sum(entries)

    def spread(self, row_value):
        return _gather(row_value, self.row_ids)

    def per_entry(self, key_value):
        if self.key_ids is None:
            raise ValueError("This method needs `key_ids`, the key of each entry. Received: key_ids=None")
        return _gather(key_value, self.key_ids)

    def average(self, value):
        value = self.per_entry(ops.swapaxes(ops.cast(value, "float32"), -1, -2))
        total, count = self.sum(value), self.count(value)
        return ops.swapaxes(ops.divide_no_nan(total, count), -1, -2)

    def one_hot(self, x):
        x = self.mask_out(x)
        is_largest = ops.equal(x, self.spread(self.max(x)))
        # TensorFlow computes a segment minimum on the GPU only for floating-point numbers.
        position = ops.arange(ops.shape(x)[-1], dtype="float64")
        first = self._reduce(tf.math.unsorted_segment_min, ops.where(is_largest, position, math.inf))
        return self.zero_masked(ops.cast(position == self.spread(first), "float32"))

    def _reduce(self, segment_reduction, x):
        """Reduce the last axis of x."""
        leading = ops.shape(x)[:-1]
        num_lists = math.prod(leading)
        if not leading or (isinstance(num_lists, int) and num_lists == 1):
            reduced = segment_reduction(ops.reshape(x, (-1,)), self.row_ids, self.num_rows)
        else:
            # Transposing x instead would be slower.
            first = ops.arange(num_lists, dtype="int64")[:, None] * ops.cast(self.num_rows, "int64")
            ids = ops.reshape(first + self.row_ids, (-1,))
            reduced = segment_reduction(ops.reshape(x, (-1,)), ids, num_lists * self.num_rows)
        return ops.reshape(reduced, (*leading, self.num_rows))


def _gather(x, ids):
    # Gathering along the last axis would take four times as long.
    return ops.moveaxis(gather(ops.moveaxis(x, -1, 0), ids), 0, -1)


def _ids(name, ids):
    ids = ops.convert_to_tensor(ids)
    if not ids.dtype.is_integer or len(ids.shape) != 1:
        raise ValueError(
            f"`{name}` must be integers of shape (E,). Received: {name} of shape {tuple(ids.shape)}, {ids.dtype.name}"
        )
    # With int32, most GPU kernels of TensorFlow would keep the ids in host memory.
    return ops.cast(ids, "int64")
