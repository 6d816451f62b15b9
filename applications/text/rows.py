"""Stores sequences of sentences or of their ids: small sequences in memory, large sequences in temporary files.

A sequence of more than `MOST_IN_MEMORY` bytes is stored in an unnamed file in the folder that TMPDIR names. Memory
then holds 12 bytes per row.
"""

import array
import collections.abc
import copy
import mmap
import operator
import os
import tempfile
import weakref

import numpy as np

from applications.common.errors import InputError

# Maximum number of bytes in memory. A sentence needs about 150 bytes.
MOST_IN_MEMORY = 2**28


class _Writer:
    def __init__(self):
        self._sizes = array.array("i")
        # Without `dir`, Python uses another folder if it cannot write to TMPDIR.
        folder = os.environ.get("TMPDIR") or None
        self._file = tempfile.SpooledTemporaryFile(MOST_IN_MEMORY, dir=folder)  # noqa: SIM115
        # If an error prevents `finish`, Python would warn about the open file.
        weakref.finalize(self, self._file.close)

    def extend(self, content, sizes):
        """Append rows: their concatenated bytes `content`, and the number of bytes of each row."""
        self._sizes.extend(sizes)
        try:
            self._file.write(content)
        except OSError as error:
            folder = os.environ.get("TMPDIR") or "the temporary folder"
            raise InputError(
                f"{folder}: cannot store a copy of the data ({error}). Set the environment variable TMPDIR to a folder "
                "that has free space for three copies of the text."
            ) from error

    def finish(self):
        """Return the bytes of all rows, the start of each row (int64), and its size (int32)."""
        sizes = np.array(self._sizes, np.int32)
        starts = np.cumsum(sizes, dtype=np.int64) - sizes
        with self._file as file:
            if sizes.sum(dtype=np.int64) > MOST_IN_MEMORY:
                file.flush()
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), starts, sizes
            file.seek(0)
            return file.read(), starts, sizes


class Rows(collections.abc.Sequence):
    """A sequence of rows that are stored as bytes. Slicing returns a list.

    A subclass defines `_encoded`, which converts a row to bytes, and `_decoded`, which converts bytes to a row.
    """

    def __init__(self, writer):
        self._content, self._starts, self._sizes = writer.finish()

    @classmethod
    def of(cls, rows):
        """Convert an iterable to an instance of this class; an instance is returned unchanged."""
        return rows if isinstance(rows, cls) else cls.columns(zip(rows), 1)[0]

    @classmethod
    def columns(cls, rows, number):
        """Convert an iterable of tuples to a list of instances. Instance k contains element k of every tuple."""
        writers = [_Writer() for _ in range(number)]
        for row in rows:
            for writer, field in zip(writers, row, strict=True):
                content = cls._encoded(field)
                writer.extend(content, [len(content)])
        return list(map(cls, writers))

    def __len__(self):
        return len(self._starts)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        start = self._starts[index]
        return self._decoded(self._content[start : start + self._sizes[index]])

    def __eq__(self, other):
        if not isinstance(other, collections.abc.Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, map(self._encoded, self), map(self._encoded, other)))

    def take(self, indices):
        """Return the rows at `indices`, in this order. The stored bytes are shared, not copied."""
        take_rows = copy.copy(self)
        take_rows._starts, take_rows._sizes = self._starts[indices], self._sizes[indices]
        return take_rows


class TextRows(Rows):
    """A sequence of str."""

    _encoded = staticmethod(str.encode)
    _decoded = staticmethod(bytes.decode)


class IdRows(Rows):
    """A sequence of read-only int32 arrays."""

    @classmethod
    def joined(cls, parts):
        """Return `IdRows` from pairs (ids, lengths): the int32 ids of several rows, and their lengths."""
        writer = _Writer()
        for ids, lengths in parts:
            writer.extend(ids.tobytes(), (4 * lengths).tolist())
        return cls(writer)

    @property
    def lengths(self):
        """Number of ids in each row, int32."""
        return self._sizes // 4

    @staticmethod
    def _encoded(row):
        return np.asarray(row, np.int32).tobytes()

    @staticmethod
    def _decoded(content):
        return np.frombuffer(content, np.int32)


def take_rows(column, indices):
    """Return the rows at `indices` of a list or a `TextRows`."""
    return column.take(indices) if isinstance(column, TextRows) else [column[index] for index in indices]


def distinct(column):
    """Return the distinct strings of a column, in the order of their first occurrence."""
    hashes = np.fromiter(map(hash, column), np.int64, len(column))
    return take_rows(column, np.sort(np.unique(hashes, return_index=True)[1]))


def ranks(values):
    """Return, for each value, its index in the sorted list of distinct values: an int64 array."""
    place = {value: rank for rank, value in enumerate(sorted(set(values)))}
    return np.array([place[value] for value in values], np.int64)
