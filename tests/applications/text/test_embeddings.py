import gzip

import numpy as np
import pytest

from applications.common.errors import InputError
from applications.text.embeddings import load_embeddings
from applications.text.text import Vocabulary

VOCABULARY = Vocabulary(["the", "são", "absent"])
ROWS = {"the": [0.5, -1.0, 2.0], "são": [1.0, 0.25, 0.0], "other": [9.0, 9.0, 9.0], ",": [0.0, 0.0, 1.0]}
TEXT = "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in ROWS.items()).encode()


def write_npz(folder, vectors=None):
    np.savez(folder / "v.npz", vectors=np.array(vectors or list(ROWS.values()), np.float16))
    (folder / "words_top.txt").write_text("\n".join(ROWS) + "\n", encoding="utf-8")
    return folder / "v.npz"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("glove.txt", TEXT),
        ("glove.txt.gz", gzip.compress(TEXT, mtime=0)),
        ("word2vec.txt", b"4 3\n" + TEXT),
        ("vectors.npz", None),
    ],
)
def test_all_formats_give_one_matrix(tmp_path, name, content):
    path = write_npz(tmp_path)
    if content is not None:
        path = tmp_path / name
        path.write_bytes(content)
    matrix, num_known = load_embeddings(path, VOCABULARY, 3)
    assert (num_known, matrix.dtype, matrix.shape) == (2, np.float32, (7, 3))
    np.testing.assert_array_equal(matrix[[0, 4, 5]], [[0.0, 0.0, 0.0], ROWS["the"], ROWS["são"]])
    matrices = matrix[[1, 2, 3, 6]]
    assert np.all(matrices != 0.0) and np.abs(matrices).max() < 0.5


def test_missing_words_follow_the_seed(tmp_path):
    path = tmp_path / "v.txt"
    path.write_bytes(TEXT)
    many = Vocabulary([f"w{index}" for index in range(2000)])
    first, again, other = (load_embeddings(path, many, 3, seed=seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    # The standard error of the standard deviation of 6009 samples is 0.1 / sqrt(2 * 6009) = 0.0009.
    assert abs(first[1:].std() - 0.1) < 4 * 0.0009


def test_the_first_of_two_lines_counts_and_words_may_contain_spaces(tmp_path):
    path = tmp_path / "v.txt"
    path.write_bytes(b"the 1 2 3\nat name 4 5 6\nthe 7 8 9\n\xff\xfe 1 1 1\n<pad> 5 5 5\n")
    matrix, num_known = load_embeddings(path, VOCABULARY, 3)
    assert (matrix[4].tolist(), num_known) == ([1.0, 2.0, 3.0], 1)
    assert not matrix[0].any()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.txt", b"the 1 2\n", "of dimension 3. Received: vectors of dimension 2"),
        ("v.txt", b"the 1 2 3 4\n", "vectors of dimension 4"),
        ("v.txt", b"4 50\nthe 1 2 3\n", "vectors of dimension 50"),
        ("v.txt", b"a 1 2 3\nthe 1 2\n", r"2 numbers \(line 2\)"),
        ("v.txt", b"a 1 2 3\nthe 1 x 3\n", r"could not convert .* \(line 2\)"),
        ("v.txt", b"the 1 nan 3\n", r"NaN or infinity \(line 1\)"),
        ("v.txt", b"", "the file is empty"),
        ("v.txt.gz", b"the 1 2 3\n", "gzip"),
        ("v.txt.gz", gzip.compress(TEXT * 500, mtime=0)[:-20], "ended before"),
        ("v.npz", b"PK rubbish", "Received"),
    ],
)
def test_damaged_files(tmp_path, name, content, message):
    (tmp_path / "words.txt").write_text("the\n")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_embeddings(tmp_path / name, VOCABULARY, 3)


def test_arrays_that_are_not_vectors(tmp_path):
    with pytest.raises(InputError, match=r"dimension 4. Received: vectors of shape \(4, 3\) for the 4 words"):
        load_embeddings(write_npz(tmp_path), VOCABULARY, 4)
    path = write_npz(tmp_path, [[1.0, 2.0, 3.0]])
    with pytest.raises(InputError, match=r"shape \(1, 3\) for the 4 words"):
        load_embeddings(path, VOCABULARY, 3)
    (tmp_path / "words_more.txt").write_text("the\n")
    with pytest.raises(InputError, match=r"^[^:]*: expected one words\*\.txt.*Received: 2"):
        load_embeddings(path, VOCABULARY, 3)
    with pytest.raises(InputError, match="no such file"):
        load_embeddings(tmp_path / "none", VOCABULARY, 3)
