"""Tests that rows in memory and in files behave like a list."""

import errno
import tempfile

import numpy as np
import pytest
from files import fails
from hypothesis import given, settings
from hypothesis import strategies as st

from applications.common.runs import digest_of
from applications.text import rows
from applications.text.rows import IdRows, TextRows, distinct, ranks

TEXTS = ["one two", "", "thr\u2028ee", "a\0", "a", "𝔸\n", "one two"]


@pytest.fixture(params=[2**20, 8], ids=["memory", "file"], autouse=True)
def most_in_memory(request, monkeypatch):
    monkeypatch.setattr(rows, "MOST_IN_MEMORY", request.param)


def test_a_sequence_of_texts():
    texts = TextRows.of(iter(TEXTS))
    assert list(texts) == TEXTS and texts == TEXTS and texts != None and TextRows.of(["a\0"]) != ["a"]  # noqa: E711
    assert texts != TEXTS[1:] and texts != [*TEXTS[:-1], "x"]
    assert (texts[2], texts[-1], texts[np.int64(5)]) == ("thr\u2028ee", "one two", "𝔸\n")
    assert texts[1:4] == TEXTS[1:4] and texts[::-2] == TEXTS[::-2] and texts[9:] == []
    chosen = texts.take([5, 0, 0]).take(np.array([0, 2]))
    del texts
    assert list(chosen) == ["𝔸\n", "one two"] and len(chosen) == 2
    assert list(chosen.take([])) == list(TextRows.of([])) == []
    first, second = TextRows.columns(zip(TEXTS, reversed(TEXTS), strict=True), 2)
    assert (list(first), list(second)) == (TEXTS, TEXTS[::-1])
    # Lists and rows have the same digest, so a run on lists can be resumed.
    assert digest_of({"a": first, "b": 1}) == digest_of({"a": TEXTS, "b": 1}) != digest_of({"a": TEXTS[1:], "b": 1})


def test_a_sequence_of_ids():
    ids = IdRows.of([[4, 5], [], np.array([2**31 - 1]), np.array([7, 8], np.int32)])
    assert [row.tolist() for row in ids] == [[4, 5], [], [2**31 - 1], [7, 8]]
    assert ids.lengths.tolist() == [2, 0, 1, 2] and ids[0].dtype == np.int32
    assert IdRows.of(ids) is ids and ids == [[4, 5], [], [2**31 - 1], [7, 8]]
    assert ids.take([3, 1]).lengths.tolist() == [2, 0]
    parts = [(np.array([4, 5], np.int32), np.array([2, 0])), (np.array([2**31 - 1, 7, 8], np.int32), np.array([1, 2]))]
    assert IdRows.joined(parts) == ids and IdRows.joined([]) == []


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text("a\0ß𝔸", max_size=4), max_size=30))
def test_ranks_and_distinct_ones(texts):
    expected = [sorted(set(texts)).index(text) for text in texts]
    assert ranks(TextRows.of(texts)).tolist() == ranks(texts).tolist() == expected
    assert list(distinct(TextRows.of(texts))) == distinct(texts) == list(dict.fromkeys(texts))


class Full:
    def write(self, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self):
        pass


def test_a_full_disk(monkeypatch):
    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", lambda *arguments, **options: Full())
    fails(lambda: TextRows.of(TEXTS), "No space left", "TMPDIR")


def test_a_folder_that_cannot_be_written(monkeypatch, tmp_path):
    """An invalid TMPDIR raises an error, because Python would silently use another folder."""
    monkeypatch.setattr(rows, "MOST_IN_MEMORY", 8)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    fails(lambda: TextRows.of(TEXTS), tmp_path / "none", "TMPDIR")
