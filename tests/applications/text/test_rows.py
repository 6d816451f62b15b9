"""Rows on disk: as a list of them would be."""

import errno
import gc
import os
import tempfile

import numpy as np
from files import fails
from hypothesis import given, settings
from hypothesis import strategies as st

from applications.common.runs import digest_of
from applications.text import rows
from applications.text.batching import bucketed_dataset
from applications.text.rows import IdRows, TextRows, distinct, ranks

TEXTS = ["one two", "", "thr\u2028ee", "a\0", "a", "𝔸\n", "one two"]
# Long common beginnings, and characters of one to four bytes.
SOME_TEXT = st.lists(st.text("a\0ß𝔸", max_size=3).map(lambda end: "a" * 14 + end) | st.text(max_size=4), max_size=30)


def test_a_sequence_of_texts(monkeypatch):
    monkeypatch.setattr(rows, "_CHUNK", 2)
    texts = TextRows(iter(TEXTS))
    assert list(texts) == TEXTS and texts == TEXTS and texts != None and TextRows(["a\0"]) != ["a"]  # noqa: E711
    assert texts != TEXTS[1:] and texts != [*TEXTS[:-1], "x"]
    assert (texts[2], texts[-1], texts[np.int64(5)]) == ("thr\u2028ee", "one two", "𝔸\n")
    assert texts[1:4] == TEXTS[1:4] and texts[::-2] == TEXTS[::-2] and texts[9:] == []
    chosen = texts.take([5, 0, 0]).take(np.array([0, 2]))
    assert list(chosen) == ["𝔸\n", "one two"] and len(chosen) == 2
    assert list(texts.take([])) == list(TextRows([])) == []
    first, second = TextRows.columns(zip(TEXTS, reversed(TEXTS), strict=True), 2)
    assert (list(first), list(second)) == (TEXTS, TEXTS[::-1])
    # A run on lists goes on with rows.
    assert digest_of({"a": texts, "b": 1}) == digest_of({"a": TEXTS, "b": 1}) != digest_of({"a": TEXTS[1:], "b": 1})


def test_a_sequence_of_ids():
    ids = IdRows.of([[4, 5], [], np.array([2**31 - 1]), np.array([7, 8], np.int32)])
    assert [row.tolist() for row in ids] == [[4, 5], [], [2**31 - 1], [7, 8]]
    assert ids.lengths.tolist() == [2, 0, 1, 2] and ids[0].dtype == np.int32
    assert IdRows.of(ids) is ids and ids == [[4, 5], [], [2**31 - 1], [7, 8]]
    assert ids.take([3, 1]).lengths.tolist() == [2, 0]
    assert IdRows.joined(ids.parts()) == ids and IdRows.joined([]) == []


def test_words(monkeypatch):
    monkeypatch.setattr(rows, "_CHUNK", 2)
    texts = TextRows(["a  b a", "", "c\u2028d a", "b"])
    words, in_texts = texts.words()
    assert words == ["a", "b", "c\u2028d"] and texts.words()[0] is words
    assert [row.tolist() for row in in_texts] == [[0, 1, 0], [], [2, 0], [1]]
    assert list(texts.take([3]).words()[0]) == ["b"]
    # A word has another number once too many are known.
    monkeypatch.setattr(rows, "_MOST_WORDS", 0)
    words, in_texts = TextRows(texts).words()
    assert words == ["a", "b", "c\u2028d", "a", "b"]
    assert [[words[number] for number in row] for row in in_texts] == [["a", "b", "a"], [], ["c\u2028d", "a"], ["b"]]


@settings(max_examples=200, deadline=None)
@given(SOME_TEXT)
def test_ranks_and_distinct_ones(texts):
    expected = [sorted(set(texts)).index(text) for text in texts]
    assert ranks(TextRows(texts)).tolist() == ranks(texts).tolist() == expected
    assert list(distinct(TextRows(texts))) == distinct(texts) == list(dict.fromkeys(texts))


def test_the_file_goes_with_its_rows():
    before = len(os.listdir("/proc/self/fd"))
    texts = TextRows(TEXTS)
    taken = texts.take([1, 2])
    del texts
    assert list(taken) == TEXTS[1:3] and len(os.listdir("/proc/self/fd")) == before + 1
    del taken
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_files_of_batches_go_with_them():
    before = len(os.listdir("/proc/self/fd"))
    ids = [[4, 5], [6], [7, 8, 9]]
    batches = iter(bucketed_dataset(ids, ids, 2, num_epochs=None).map(lambda inputs, target: target).skip(1))
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) >= before + 2
    assert [len(next(batches)) for _ in range(3)] == [1, 2, 1]
    del batches
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


class Short:
    """A file that takes, and gives, few bytes at a time, or none."""

    def __init__(self, room):
        self.file, self.room = tempfile.TemporaryFile(buffering=0), room  # noqa: SIM115

    def write(self, block):
        self.room -= 3
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(block[:3])

    def fileno(self):
        return self.file.fileno()

    def close(self):
        self.file.close()


def test_a_file_that_takes_and_gives_few_bytes_at_a_time(monkeypatch):
    pread = os.pread
    few = Short(99)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: few)
    monkeypatch.setattr(os, "pread", lambda file, size, start: pread(file, min(size, 2), start))
    assert list(TextRows(TEXTS)) == TEXTS


def test_a_full_disk(monkeypatch):
    full = Short(4)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: full)
    fails(lambda: TextRows(TEXTS), "No space left", "TMPDIR")


def test_a_folder_that_takes_no_file(monkeypatch, tmp_path):
    """Python by itself would take another folder than the folder of TMPDIR; an empty TMPDIR is none."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    fails(lambda: TextRows(TEXTS), tmp_path / "none", "TMPDIR")
    monkeypatch.setenv("TMPDIR", "")
    assert list(TextRows(TEXTS)) == TEXTS
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    fails(lambda: TextRows(TEXTS), "the temporary folder", "TMPDIR")
