"""Rows of different lengths on disk: the sentences of a data set of any size, and their ids.

A file without a name holds the bytes, in the folder that TMPDIR names, and is gone with its rows. In memory are 12
bytes a row.
"""

import array
import collections.abc
import copy
import itertools
import operator
import os
import tempfile
import weakref

import numpy as np

from applications.common.errors import InputError
from applications.common.progress import progress

# Bytes that are written at once, and rows that are read at once.
_BLOCK = 1 << 20
_CHUNK = 4096
# Words whose numbers are in memory at once.
_MOST_WORDS = 500_000
# Bytes of a text that are compared first.
_PREFIX = 16


class _File:
    """A temporary file to which rows are added, until `index` is called."""

    def __init__(self):
        self._sizes, self._parts, self._waiting = array.array("i"), [], 0
        try:
            # Without `dir` Python takes another folder where it cannot write to the folder of TMPDIR.
            folder = os.environ.get("TMPDIR") or None
            self._file = tempfile.TemporaryFile(buffering=0, dir=folder)  # noqa: SIM115, it lives as long as this object
        except OSError as error:
            raise _unusable(error) from error
        # Python warns of a file that nobody closes.
        weakref.finalize(self, self._file.close)

    def add(self, content):
        self.extend(content, [len(content)])

    def extend(self, content, sizes):
        """Add several rows, joined, of these sizes in bytes."""
        self._parts.append(content)
        self._sizes.extend(sizes)
        self._waiting += len(content)
        if self._waiting >= _BLOCK:
            self._write()

    def _write(self):
        block = memoryview(b"".join(self._parts))
        self._parts, self._waiting = [], 0
        try:
            while block:
                block = block[self._file.write(block) :]
        except OSError as error:
            raise _unusable(error) from error

    def index(self):
        """Return the starts of the rows, int64, and their sizes, int32, in bytes."""
        self._write()
        sizes, self._sizes = np.array(self._sizes, np.int32), None
        return np.cumsum(sizes, dtype=np.int64) - sizes, sizes

    def read(self, start, size):
        content = os.pread(self._file.fileno(), size, start)
        while len(content) < size:
            # Linux reads 2 GiB at once.
            more = os.pread(self._file.fileno(), size - len(content), start + len(content))
            if not more:
                raise OSError("The temporary file of the data is shorter than it was.")
            content += more
        return content


def _unusable(error):
    folder = os.environ.get("TMPDIR") or "the temporary folder"
    return InputError(
        f"{folder}: cannot keep a copy of the data there ({error}). Set the variable TMPDIR to a folder on a disk with "
        "room for three times the text."
    )


class Rows(collections.abc.Sequence):
    """A sequence of rows in a file; a slice of it is a list. Base class of `TextRows` and `IdRows`.

    It belongs to its process: it can be neither pickled nor copied deeply.

    Args:
        rows: Iterable of rows.
    """

    def __init__(self, rows):
        file = _File()
        for row in rows:
            file.add(self._encoded(row))
        self._take_over(file)

    def _take_over(self, file):
        self._file = file
        self._starts, self._sizes = file.index()

    def __len__(self):
        return len(self._starts)

    def __getitem__(self, index):
        if not isinstance(index, slice):
            return self._decoded(self._file.read(int(self._starts[index]), int(self._sizes[index])))
        return list(map(self._decoded, self._contents(index)))

    def _joined(self, index):
        """Return the bytes of the rows of a slice, and where each of them ends."""
        starts, sizes = self._starts[index], self._sizes[index]
        ends = np.cumsum(sizes, dtype=np.int64)
        if not len(starts) or starts[-1] + sizes[-1] - starts[0] != ends[-1]:
            return b"".join(map(self._file.read, starts.tolist(), sizes.tolist())), ends
        # Neighbours, which is how a data set is read from its start to its end.
        return self._file.read(int(starts[0]), int(ends[-1])), ends

    def _contents(self, index):
        content, ends = self._joined(index)
        return [content[start:end] for start, end in itertools.pairwise((0, *ends.tolist()))]

    def _parts(self):
        """Return slices of neighbouring rows."""
        return [slice(start, start + _CHUNK) for start in range(0, len(self), _CHUNK)]

    def __iter__(self):
        for part in self._parts():
            yield from self[part]

    def __eq__(self, other):
        if not isinstance(other, collections.abc.Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(self._are_equal, self, other))

    __hash__ = None

    def take(self, indices):
        """Return the rows of these indices, in their order; they stay in the file."""
        taken = copy.copy(self)
        taken._starts, taken._sizes = self._starts[indices], self._sizes[indices]
        return taken

    _are_equal = staticmethod(operator.eq)

    @staticmethod
    def _encoded(row):
        raise NotImplementedError

    @staticmethod
    def _decoded(content):
        raise NotImplementedError


class TextRows(Rows):
    """A sequence of str."""

    _words = None

    @classmethod
    def of(cls, texts):
        """Return texts as `TextRows`."""
        return texts if isinstance(texts, cls) else cls(texts)

    @classmethod
    def columns(cls, rows, number):
        """Return as many `TextRows` as a row of an iterable has fields."""
        files, columns = [_File() for _ in range(number)], [cls.__new__(cls) for _ in range(number)]
        for row in rows:
            for file, field in zip(files, row, strict=True):
                file.add(field.encode())
        for column, file in zip(columns, files, strict=True):
            column._take_over(file)
        return columns

    def take(self, indices):
        taken = super().take(indices)
        taken._words = None
        return taken

    def words(self):
        """Return the words between spaces, `TextRows`, and the numbers of the words of each text, `IdRows`.

        They are looked for once. Of many words, or texts without spaces, some are there several times, so that few are
        in memory. A word may hold a space that is none of ASCII's.
        """
        if self._words is None:
            numbers = _Numbers()

            def of_texts():
                for part in progress(self._parts(), "reading words"):
                    if len(numbers) > _MOST_WORDS:
                        numbers.clear()
                    texts = [text.split() for text in self._contents(part)]
                    lengths = np.fromiter(map(len, texts), np.int32, len(texts))
                    words = itertools.chain.from_iterable(texts)
                    yield np.fromiter(map(numbers.__getitem__, words), np.int32, lengths.sum()), lengths

            in_texts = IdRows.joined(of_texts())
            words = TextRows.__new__(TextRows)
            words._take_over(numbers.file)
            self._words = words, in_texts
        return self._words

    @staticmethod
    def _encoded(row):
        return row.encode()

    @staticmethod
    def _decoded(content):
        return content.decode()


class _Numbers(dict):
    """Numbers of words, which a file keeps in their order; a word that is new has the next number."""

    def __init__(self):
        self.file, self._next = _File(), 0

    def __missing__(self, word):
        self[word] = number = self._next
        self._next += 1
        self.file.add(word)
        return number


class IdRows(Rows):
    """A sequence of int32 arrays, which cannot be written to."""

    _are_equal = staticmethod(np.array_equal)

    @classmethod
    def of(cls, rows):
        """Return rows as `IdRows`."""
        return rows if isinstance(rows, cls) else cls(rows)

    @classmethod
    def joined(cls, parts):
        """Return the rows of an iterable of (ids of neighbouring rows, int32, and their lengths)."""
        file, rows = _File(), cls.__new__(cls)
        for ids, lengths in parts:
            file.extend(ids.tobytes(), (4 * lengths).tolist())
        rows._take_over(file)
        return rows

    def parts(self):
        """Yield what `joined` takes."""
        for part in self._parts():
            content, ends = self._joined(part)
            yield np.frombuffer(content, np.int32), np.diff(ends, prepend=0) // 4

    @property
    def lengths(self):
        """Number of ids of each row, int32."""
        return self._sizes // 4

    @staticmethod
    def _encoded(row):
        return np.asarray(row, np.int32).tobytes()

    @staticmethod
    def _decoded(content):
        return np.frombuffer(content, np.int32)


def taken(column, indices):
    """Return the rows of a column, a list or `TextRows`, with these indices."""
    return column.take(indices) if isinstance(column, TextRows) else [column[index] for index in indices]


def distinct(column):
    """Return the different rows of a column of str, in the order in which they come first."""
    hashes = np.fromiter(map(hash, column), np.int64, len(column))
    return taken(column, np.sort(np.unique(hashes, return_index=True)[1]))


def ranks(values):
    """Return the place of each value among the different ones in ascending order, an int64 array.

    Args:
        values: A list or `TextRows`. Of `TextRows`, texts with the same beginning are in memory at the same time.
    """
    if not isinstance(values, TextRows):
        place = {value: rank for rank, value in enumerate(sorted(set(values)))}
        return np.array([place[value] for value in values], np.int64)
    # The bytes of UTF-8 have the order of their characters.
    prefixes = np.fromiter((text[:_PREFIX].encode()[:_PREFIX] for text in values), f"S{_PREFIX}", len(values))
    order = np.argsort(prefixes, kind="stable")
    starts = np.flatnonzero(np.r_[True, prefixes[order][1:] != prefixes[order][:-1]][: len(order)])
    rank_of_row, rank = np.empty(len(values), np.int64), -1
    for first, end in itertools.pairwise((*starts.tolist(), len(order))):
        rows = order[first:end]
        if len(rows) == 1:
            rank += 1
            rank_of_row[rows] = rank
            continue
        last = None
        for text, row in sorted(zip(values.take(rows)[:], rows.tolist(), strict=True)):
            rank += text != last
            rank_of_row[row], last = rank, text
    return rank_of_row
