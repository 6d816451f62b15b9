"""Pretrained word vectors for a vocabulary, from the formats in which they are published."""

import contextlib
import gzip
import pathlib
import zipfile
import zlib

import numpy as np

from applications.common.errors import InputError

RANDOM_SCALE = 0.1


def load_embeddings(path, vocabulary, dimension, seed=0):
    """Return an embedding matrix for the vocabulary, filled from a file of word vectors.

    The name of the file says its format. An .npz holds an array `vectors` (N, D), and the one file named words*.txt in
    its folder has a word a line; .bin is word2vec's binary format; anything else is text, a word and its D numbers a
    line, with word2vec's header line or without (GloVe). Text and .bin may be compressed as .gz.

    Words match exactly: a lower-cased vocabulary finds no upper-cased vector. The first of several vectors of a word
    counts. Vectors of words outside the vocabulary are not read.

    Args:
        path: The file.
        vocabulary: `Vocabulary`.
        dimension: The D that the model expects.
        seed: Integer, for the vectors of missing words.

    Returns:
        `(matrix, num_known)`: float32 (V, D) with zeros for padding, id 0, and normal(0, 0.1) draws for words without a
        vector; and the number of words with one.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file of word vectors")
    ids = {token.encode(): index for index, token in enumerate(vocabulary.tokens)}
    matrix = np.random.default_rng(seed).normal(0.0, RANDOM_SCALE, (len(ids), dimension)).astype(np.float32)
    matrix[0] = 0.0
    kind = pathlib.Path(path.name.removesuffix(".gz")).suffix
    read = {".npz": _npz_vectors, ".bin": _binary_vectors}.get(kind, _text_vectors)
    known = {0}  # Padding stays zero even if the file has a word that is spelled like it.
    for place, word, vector in read(path, ids, dimension):
        if not np.isfinite(vector).all():
            raise InputError(f"{place}: a vector with a number that is not finite")
        if ids[word] not in known:
            matrix[ids[word]] = vector
            known.add(ids[word])
    return matrix, len(known) - 1


def _text_vectors(path, ids, dimension):
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            place = f"{path}:{number}"
            # The word may hold spaces (GloVe 840B has such), so the numbers are cut off from the right.
            word, *numbers = line.rstrip().rsplit(b" ", dimension)
            if number == 1:
                fields = line.split()
                header = len(fields) == 2 and all(field.isdigit() for field in fields)
                _check_dimension(place, int(fields[1]) if header else len(fields) - 1, dimension)
                if header:
                    continue
            if len(numbers) != dimension:
                raise InputError(f"{place}: expected a word and {dimension} numbers")
            if word in ids:
                try:
                    yield place, word, np.array([float(field) for field in numbers], np.float32)
                except ValueError as error:
                    raise InputError(f"{place}: not a number ({error})") from error


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
                yield f"{path}, word {number}", word, np.frombuffer(content, "<f4")


def _npz_vectors(path, ids, dimension):
    beside = sorted(path.parent.glob("words*.txt"))
    if len(beside) != 1:
        raise InputError(f"{path}: its words, one a line, must stand in one file words*.txt beside it")
    words = beside[0].read_bytes().removesuffix(b"\n").split(b"\n")
    try:
        # Never allow_pickle: unpickling runs code from the file.
        with np.load(path, allow_pickle=False) as arrays:
            vectors = arrays["vectors"]
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: not an .npz file with an array named vectors ({error})") from error
    if vectors.ndim != 2 or len(vectors) != len(words):
        raise InputError(f"{path}: vectors of shape {vectors.shape} for the {len(words)} words of {beside[0]}")
    _check_dimension(path, vectors.shape[1], dimension)
    for number, (word, vector) in enumerate(zip(words, vectors, strict=True), start=1):
        word = word.rstrip(b"\r")
        if word in ids:
            yield f"{beside[0]}:{number}", word, vector.astype(np.float32)


def _check_dimension(place, dimension, expected):
    if dimension != expected:
        raise InputError(f"{place}: vectors of dimension {dimension}, but the model's embeddings have {expected}")


@contextlib.contextmanager
def _opened(path):
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            if not file.peek(1):
                raise InputError(f"{path}: the file is empty")
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not a whole gzip file ({error})") from error
