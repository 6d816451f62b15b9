"""Pretrained word vectors for a vocabulary, from the formats in which they are published."""

import contextlib
import gzip
import pathlib
import zipfile
import zlib

import numpy as np

from applications.common.errors import InputError

RANDOM_SCALE = 0.1


def load_embeddings(path, vocabulary, dimension, words_path=None, seed=0):
    """An embedding matrix for the vocabulary, filled from a file of word vectors.

    The format follows from the name: ``.npz`` holds an array `vectors` (N, D) whose words stand one per line in a text
    file beside it; ``.bin`` is word2vec's binary format; anything else is text, a word and its D numbers per line,
    with word2vec's header line or without (GloVe). Text and binary files may be compressed as ``.gz``.

    Words match exactly; a lower-cased vocabulary finds no upper-cased vector. Where a file has a word twice, the first
    counts. Numbers of words outside the vocabulary are not looked at.

    Args:
        path: the file of vectors.
        vocabulary: a `Vocabulary`.
        dimension: int, the D that the model expects.
        words_path: the words of an ``.npz``. Default: the one file named ``words*.txt`` in its folder.
        seed: int, default 0, for the vectors of missing words.

    Returns:
        `(matrix, num_found)`: float32 (V, D) with zeros for padding, id 0, and normal(0, 0.1) draws for words without a
        vector; and how many words have one.

    Raises:
        InputError: for a missing or damaged file, another dimension, or a line that is not a word and D numbers.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file of word vectors")
    ids = {token.encode(): index for index, token in enumerate(vocabulary.tokens)}
    matrix = np.random.default_rng(seed).normal(0.0, RANDOM_SCALE, (len(ids), dimension)).astype(np.float32)
    matrix[0] = 0.0
    kind = pathlib.Path(path.name.removesuffix(".gz")).suffix
    if kind == ".npz":
        vectors = _npz_vectors(path, words_path, ids, dimension)
    elif kind == ".bin":
        vectors = _binary_vectors(path, ids, dimension)
    else:
        vectors = _text_vectors(path, ids, dimension)
    found = {0}  # Padding stays zero even if the file has a word that is spelled like it.
    for word, vector in vectors:
        index = ids[word]
        if index not in found:
            matrix[index] = vector
            found.add(index)
    return matrix, len(found) - 1


def _text_vectors(path, ids, dimension):
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            # The word may hold spaces (GloVe 840B has such), so the numbers are cut off from the right.
            fields = line.rstrip().rsplit(b" ", dimension)
            if number == 1:
                width = len(line.split()) - 1
                header = width == 1 and all(field.isdigit() for field in line.split())
                _check_dimension(f"{path}:1", int(line.split()[1]) if header else width, dimension)
                if header:
                    continue
            if len(fields) != dimension + 1:
                raise InputError(f"{path}:{number}: expected a word and {dimension} numbers")
            if fields[0] in ids:
                yield fields[0], _numbers(fields[1:], f"{path}:{number}")


def _numbers(fields, place):
    try:
        vector = np.array([float(field) for field in fields], np.float32)
    except ValueError as error:
        raise InputError(f"{place}: not a number ({error})") from error
    return _finite(vector, place)


def _finite(vector, place):
    if not np.isfinite(vector).all():
        raise InputError(f"{place}: a vector with a number that is not finite")
    return vector


def _binary_vectors(path, ids, dimension):
    with _opened(path) as file:
        header = file.readline(100).split()
        if len(header) != 2 or not all(field.isdigit() for field in header):
            raise InputError(f"{path}: a word2vec .bin file begins with the number of words and the dimension")
        _check_dimension(path, int(header[1]), dimension)
        for number in range(1, int(header[0]) + 1):
            word = bytearray()
            while (character := file.read(1)) not in (b" ", b""):
                word += character
            content = file.read(4 * dimension)
            if len(content) != 4 * dimension:
                raise InputError(f"{path}: ends inside word {number} of {int(header[0])}")
            word = bytes(word).lstrip(b"\n")
            if word in ids:
                yield word, _finite(np.frombuffer(content, "<f4"), f"{path}, word {number}")


def _npz_vectors(path, words_path, ids, dimension):
    if words_path is None:
        beside = sorted(path.parent.glob("words*.txt"))
        if len(beside) != 1:
            raise InputError(f"{path}: needs its words, one per line; name the file with --embeddings-words")
        words_path = beside[0]
    words_path = pathlib.Path(words_path)
    if not words_path.is_file():
        raise InputError(f"{words_path}: no such file of words")
    words = words_path.read_bytes().removesuffix(b"\n").split(b"\n")
    try:
        # Never allow_pickle: unpickling runs code from the file.
        with np.load(path, allow_pickle=False) as arrays:
            vectors = arrays["vectors"]
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: not an .npz file with an array named vectors ({error})") from error
    if vectors.ndim != 2 or len(vectors) != len(words):
        raise InputError(f"{path}: vectors of shape {vectors.shape} for the {len(words)} words of {words_path}")
    _check_dimension(path, vectors.shape[1], dimension)
    for number, (word, vector) in enumerate(zip(words, vectors, strict=True), start=1):
        word = word.rstrip(b"\r")
        if word in ids:
            yield word, _finite(vector.astype(np.float32), f"{words_path}:{number}")


def _check_dimension(place, found, expected):
    if found != expected:
        raise InputError(f"{place}: vectors of dimension {found}, but the model's embeddings have {expected}")


@contextlib.contextmanager
def _opened(path):
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            if not file.peek(1):
                raise InputError(f"{path}: the file is empty")
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not a whole gzip file ({error})") from error
