"""Rows of a larger draw without the rest of it: which ones, and where `keras_vattn.random` finds their bits."""

import contextlib
import math
import threading
from typing import NamedTuple

import tensorflow as tf


class _Rows(NamedTuple):
    """Arguments of `rows_of`."""

    group: object
    num_groups: object
    first: object
    length: object
    columns: tuple | None
    is_even: bool
    # Filled by whoever reads the rows.
    reads: list

    def parts(self, shape):
        """Return for an array (1, ..., n, width) its width in the whole, and the first entry of each (n, width)."""
        width = self.columns[1] if self.columns is not None and shape[-1] == self.columns[0] else shape[-1]
        self.reads.append(shape)
        num_parts = math.prod(shape[1:-2])
        first = [(self.group * num_parts + part) * self.length + self.first for part in range(num_parts)]
        return width, [x * tf.cast(width, tf.int64) for x in first]

    def size(self, shape, width):
        """Return the number of entries of the whole array."""
        return math.prod(tf.cast(x, tf.int64) for x in (self.num_groups, *shape[1:-2], self.length, width))

    def joined(self, parts, shape, width):
        """Return the array of its parts."""
        parts = [tf.reshape(part, (*shape[-2:-1], width))[:, : shape[-1]] for part in parts]
        return tf.reshape(tf.stack(parts), shape)

    def of(self, shape, words):
        """Return the words of an array from a function of the first and the number of them."""
        width, firsts = self.parts(shape)
        return self.joined([words(first, shape[-2] * width) for first in firsts], shape, width)


class _Here(threading.local):
    rows = None


HERE = _Here()


@contextlib.contextmanager
def rows_of(group, num_groups, first, length, columns=None, is_even=False):
    """Within, draws are rows of larger ones: (1, ..., n, width) has the numbers that the rows `first` to `first + n` of
    one group have in a draw of shape (num_groups, ..., length, width) from the same seed.

    Philox is read from any counter on, so nothing else is drawn.

    Args:
        group: Index of the group, an integer or integer ().
        num_groups: Number of groups, likewise.
        first: The first row, likewise.
        length: Number of rows of a group, likewise.
        columns: (S, S'), where an array of width S has the first columns of one of width S'; `None` for no such.
        is_even: Whether the number of groups is known to be even, which makes normals cheaper.
    """
    where = (tf.cast(x, tf.int64) for x in (group, num_groups, first, length))
    outer, HERE.rows = HERE.rows, _Rows(*where, columns, is_even, [])
    try:
        yield
    finally:
        HERE.rows = outer


def require_rows(noise):
    """Raise ValueError if noise was made inside `rows_of` without its rows: every part would have the same."""
    if noise is not None and HERE.rows is not None and not HERE.rows.reads:
        raise ValueError(
            "In parts of the queries the noise of an alignment is drawn by keras_vattn.random, whose rows each part "
            "reads: draw it there, or take query_chunk_size=None."
        )
