"""Reads pretrained word vectors in their published formats (GloVe, word2vec, .npz)."""

import gzip
import pathlib

import numpy as np

from applications.common.errors import InputError, reading
from applications.text.readers import require_text

RANDOM_SCALE = 0.1


def load_embeddings(path, vocabulary, dimension, seed=0):
    """Return an embedding matrix for the vocabulary, filled from a file of word vectors.

    - A text file, plain or .gz, has one word and its D numbers per line. A header line, as in word2vec, is skipped.
    - An .npz file contains an array `vectors` (N, D). Its folder contains one file words*.txt, with one word per line.

    Words are case-sensitive. If a word occurs more than once, its first vector is used.

    Args:
        path: File of word vectors.
        vocabulary: `Vocabulary`.
        dimension: The dimension D that the model expects.
        seed: Integer, for the random vectors of missing words.

    Returns:
        `(matrix, num_known)`. The matrix is float32 (V, D): zeros for padding, id 0, and normal(0, 0.1) noise for words
        that the file lacks. `num_known` is the number of words that the file contains.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file of word vectors")
    ids = {token.encode(): index for index, token in enumerate(vocabulary.tokens)}
    matrix = np.random.default_rng(seed).normal(0.0, RANDOM_SCALE, (len(ids), dimension)).astype(np.float32)
    matrix[0] = 0.0
    filled = {0}  # The padding remains 0, even if the file contains "<pad>".
    vectors_of = _npz_vectors if path.suffix == ".npz" else _text_vectors
    with reading(path, f"vectors of dimension {dimension}"):
        for line, word, vector in vectors_of(path, dimension):
            if (index := ids.get(word, 0)) not in filled:
                filled.add(index)
                try:
                    matrix[index] = vector
                except ValueError as error:
                    raise ValueError(f"{error} (line {line})") from error
                if not np.isfinite(matrix[index]).all():
                    raise ValueError(f"NaN or infinity (line {line})")
    return matrix, len(filled) - 1


def _text_vectors(path, dimension):
    """Yield (line number, word, list of numbers) for each line, with words and numbers as bytes."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        require_text(path, file)
        for number, line in enumerate(file, start=1):
            fields = line.split()
            if number == 1:
                has_header = len(fields) == 2 and fields[1].isdigit()
                width = int(fields[1]) if has_header else len(fields) - 1
                if width != dimension:
                    raise ValueError(f"vectors of dimension {width}")
                if has_header:
                    continue
            if len(fields) <= dimension:
                raise ValueError(f"a vector with {len(fields[1:])} numbers (line {number})")
            # Words may contain spaces (GloVe 840B), so count from the right.
            yield number, b" ".join(fields[:-dimension]), fields[-dimension:]


def _npz_vectors(path, dimension):
    files = sorted(path.parent.glob("words*.txt"))
    if len(files) != 1:
        raise InputError(f"{path}: expected one words*.txt file beside it, one word per line. Received: {len(files)}")
    words = files[0].read_bytes().splitlines()
    # Unpickling could run code from the file.
    with np.load(path, allow_pickle=False) as arrays:
        vectors = arrays["vectors"]
    if vectors.shape != (len(words), dimension):
        raise ValueError(f"vectors of shape {vectors.shape} for the {len(words)} words of {files[0]}")
    yield from zip(range(1, len(words) + 1), words, vectors, strict=True)
