import gzip
import pickle

import numpy as np
import pytest

from applications.common.errors import InputError
from applications.text.embeddings import load_embeddings
from applications.text.text import Vocabulary

VOCABULARY = Vocabulary(["the", "são", "absent"])
ROWS = {"the": [0.5, -1.0, 2.0], "são": [1.0, 0.25, 0.0], "other": [9.0, 9.0, 9.0], ",": [0.0, 0.0, 1.0]}
TEXT = "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in ROWS.items()).encode()


def binary(newline=b"\n", rows=ROWS):
    words = [word.encode() + b" " + np.array(row, "<f4").tobytes() + newline for word, row in rows.items()]
    return f"{len(rows)} 3\n".encode() + b"".join(words)


def write_npz(folder):
    np.savez(folder / "v.npz", vectors=np.array(list(ROWS.values()), np.float16))
    (folder / "words_top.txt").write_text("\n".join(ROWS) + "\n", encoding="utf-8")
    return folder / "v.npz"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("glove.txt", TEXT),
        ("glove.txt.gz", gzip.compress(TEXT, mtime=0)),
        ("word2vec.txt", b"4 3\n" + TEXT),
        ("word2vec.bin", binary()),
        ("tight.bin", binary(newline=b"")),
        ("word2vec.bin.gz", gzip.compress(binary(), mtime=0)),
        ("vectors.npz", None),
    ],
)
def test_all_formats_give_one_matrix(tmp_path, name, content):
    path = tmp_path / name
    if content is None:
        path = write_npz(tmp_path)
    else:
        path.write_bytes(content)
    matrix, num_found = load_embeddings(path, VOCABULARY, 3)
    assert num_found == 2
    assert matrix.dtype == np.float32
    assert matrix.shape == (7, 3)
    np.testing.assert_array_equal(matrix[[0, 4, 5]], [[0.0, 0.0, 0.0], ROWS["the"], ROWS["são"]])
    others = matrix[[1, 2, 3, 6]]
    assert np.all(others != 0.0)
    assert np.abs(others).max() < 0.5


def test_missing_words_follow_the_seed(tmp_path):
    path = tmp_path / "v.txt"
    path.write_bytes(TEXT)
    many = Vocabulary([f"w{index}" for index in range(2000)])
    first, again, other = (load_embeddings(path, many, 3, seed=seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    # 6009 draws: the standard error of their standard deviation is 0.1 / sqrt(2 * 6009) = 0.0009.
    assert abs(first[1:].std() - 0.1) < 4 * 0.0009


def test_first_of_two_lines_counts_and_words_may_hold_spaces(tmp_path):
    path = tmp_path / "v.txt"
    path.write_bytes(b"the 1 2 3\nat name 4 5 6\nthe 7 8 9\n\xff\xfe 1 1 1\n<pad> 5 5 5\n")
    matrix, num_found = load_embeddings(path, VOCABULARY, 3)
    assert (matrix[4].tolist(), num_found) == ([1.0, 2.0, 3.0], 1)
    assert not matrix[0].any()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.txt", b"the 1 2\n", "v.txt:1: vectors of dimension 2, .* have 3"),
        ("v.txt", b"4 50\nthe 1 2 3\n", "dimension 50"),
        ("v.txt", b"a 1 2 3\nthe 1 2\n", "v.txt:2: expected a word and 3 numbers"),
        ("v.txt", b"a 1 2 3\n\nthe 1 2 3\n", "v.txt:2: expected"),
        ("v.txt", b"a 1 2 3\nthe 1 x 3\n", "v.txt:2: not a number"),
        ("v.txt", b"the 1 nan 3\n", "v.txt:1: .*not finite"),
        ("v.txt", b"", "empty"),
        ("v.txt.gz", b"the 1 2 3\n", "gzip"),
        ("v.txt.gz", gzip.compress(TEXT * 500, mtime=0)[:-20], "gzip"),
        ("v.bin", b"\x80\x04rubbish\n", "begins with the number of words"),
        ("v.bin", binary().replace(b"4 3", b"4 5"), "dimension 5"),
        ("v.bin", binary()[:-5], "ends inside word 4 of 4"),
        ("v.bin", binary(rows={"the": [1.0, np.inf, 0.0]}), "word 1: .*not finite"),
        ("v.npz", b"PK rubbish", "not an .npz"),
    ],
)
def test_damaged_files(tmp_path, name, content, message):
    (tmp_path / "words.txt").write_text("the\n")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_embeddings(tmp_path / name, VOCABULARY, 3)


def test_npz_errors(tmp_path):
    path = write_npz(tmp_path)
    with pytest.raises(InputError, match=r"dimension 3, .* have 4"):
        load_embeddings(path, VOCABULARY, 4)
    np.savez(tmp_path / "v.npz", others=np.zeros((4, 3)))
    with pytest.raises(InputError, match="array named vectors"):
        load_embeddings(path, VOCABULARY, 3)
    path = write_npz(tmp_path)
    (tmp_path / "words_more.txt").write_text("the\n")
    with pytest.raises(InputError, match=r"its words, one a line, must stand in one file words\*\.txt beside it"):
        load_embeddings(path, VOCABULARY, 3)
    (tmp_path / "words_top.txt").unlink()
    with pytest.raises(InputError, match=r"shape \(4, 3\) for the 1 words"):
        load_embeddings(path, VOCABULARY, 3)
    with pytest.raises(InputError, match="no such file"):
        load_embeddings(tmp_path / "none", VOCABULARY, 3)


class Trap:
    def __reduce__(self):
        return (exec, ("raise SystemExit('unpickled')",))


def test_nothing_is_unpickled(tmp_path):
    (tmp_path / "words.txt").write_text("the\n")
    np.savez(tmp_path / "v.npz", vectors=np.array([Trap()], dtype=object))
    (tmp_path / "w.npz").write_bytes(pickle.dumps(Trap()))
    for name in ("v.npz", "w.npz"):
        with pytest.raises(InputError, match=r"not an \.npz"):
            load_embeddings(tmp_path / name, VOCABULARY, 3)
