"""Text as subwords, as tokens that are segmented already, or as characters: to ids and back, in graph.

Each encoder here is a `TextEncoder` and takes its place: `encode`, `encode_ragged`, `encode_numpy` and `decode` have
the shapes, the padding and the special ids of `applications.text.text`. In addition it names the pieces and knows
which word each piece belongs to, so that the weights on subwords can be summed to weights on words.

Shapes: B sentences, T pieces of the longest of them.
"""

import collections
import pathlib
import re

import numpy as np
import tensorflow as tf

from applications.common.errors import InputError
from applications.common.runs import replacing
from applications.nmt.bpe import train_bpe, vocabulary_of
from applications.nmt.tokenizers import SPACE_MARK, CharacterTokenizer, SegmentTokenizer, SubwordTokenizer
from applications.text.text import END, PAD, SPECIAL_TOKENS, START, UNKNOWN, TextEncoder, Vocabulary

CONTINUES = "@@"
_SENTENCES_AT_ONCE = 4096


class PieceEncoder(TextEncoder):
    """What the encoders of this file share: a `TextEncoder` that can name its pieces.

    A special token written out in a text is a word like any other, never the special id.

    Args:
        tokenizer: a `SegmentTokenizer`.
        vocabulary: a `Vocabulary`.

    Attributes:
        tokenizer: the tokenizer.
        vocabulary: the `Vocabulary`.
        vocabulary_size: int, the number of ids.
    """

    def __init__(self, tokenizer, vocabulary):
        super().__init__(tokenizer, vocabulary)
        self.vocabulary = vocabulary

    def encode_ragged(self, strings):
        """Ids of all pieces: (B,) strings to an int32 `tf.RaggedTensor` (B, None), nothing cut, nothing added."""
        ids = super().encode_ragged(strings)
        return ids.with_flat_values(tf.where(ids.flat_values < len(SPECIAL_TOKENS), UNKNOWN, ids.flat_values))

    def token_lists(self, sentences):
        """Pieces of sentences as they are read, unknown ones too: list of str to list of list of str. Eager only."""
        return self.tokenizer.token_lists(sentences)

    def pieces(self, ids):
        """Pieces that `decode` joins: integers (T,) to a list of str, or (B, T) to a list of lists. Eager only.

        They stop before the first `<end>`; `<pad>` and `<start>` are left out, `<unk>` is there.

        Raises:
            ValueError: for ids outside the vocabulary.
        """
        ids = np.asarray(ids)
        if ids.ndim > 1:
            return [self.pieces(row) for row in ids]
        if ids.size and not 0 <= ids.min() <= ids.max() < self.vocabulary_size:
            raise ValueError(f"Ids are at least 0 and below {self.vocabulary_size}. Received: {ids.tolist()}")
        ends = np.flatnonzero(ids == END)
        kept = ids[: ends[0]] if ends.size else ids
        return [self.vocabulary.tokens[index] for index in kept if index not in (PAD, START)]

    def words_of_pieces(self, sentences):
        """Index of the word that each piece of a sentence is of: list of str to a list of int arrays. Eager only.

        The words are those that `words_of` finds in the sentence as it stands. Normalisation can cut one in two, or
        leave nothing of it, and a piece that is read can be unknown.
        """
        found = []
        for chunk in _chunks(sentences):
            segments = [sentence.split() for sentence in chunk]
            normalized = self.tokenizer.normalize(tf.constant([x for row in segments for x in row], tf.string))
            normalized = iter(normalized.numpy())
            for row, pieces in zip(segments, self.token_lists(chunk), strict=True):
                # The word of each segment that normalisation leaves.
                words, word = [], 0
                for segment in row:
                    words += [word] * len(next(normalized).split())
                    word += not segment.endswith(CONTINUES)
                found.append(np.array([words[index] for index in self._segment_of_piece(pieces)], int))
        return found

    def _segment_of_piece(self, pieces):
        return self.word_of_piece(pieces)


class SubwordEncoder(PieceEncoder):
    """Strings to the ids of a sentencepiece model, and back.

    `decode` gives text with its spaces back. In a report, a run of unknown characters is one unknown token.

    Args:
        model: bytes, a sentencepiece model; its special ids are those of `applications.text.text`, as in what
            `train_bpe` returns.
        lowercase: bool, default True.
        normalization: "NFKC" (default), "NFC" or None, the Unicode normal form.

    Raises:
        InputError: if `model` is not a sentencepiece model, or not one that can be used here.

    Example:

    >>> encoder = SubwordEncoder.fit(["the cat sat", "the mat"], vocabulary_size=40)
    >>> encoder.token_lists(["The cat"]), encoder.word_of_piece(["▁the", "▁c", "at"])
    ([['▁the', '▁cat']], [0, 1, 1])
    >>> encoder.decode(encoder.encode(["The  cat"])).numpy()
    array([b'the cat'], dtype=object)
    """

    def __init__(self, model, lowercase=True, normalization="NFKC"):
        vocabulary = vocabulary_of(model, "model")
        super().__init__(SubwordTokenizer(model, lowercase, normalization), vocabulary)

    @classmethod
    def fit(cls, sentences, vocabulary_size, lowercase=True, normalization="NFKC", seed=0):
        """Trains on the normalised *training* sentences, a list of str; the rest as in `train_bpe`."""
        tokenizer = SegmentTokenizer(lowercase, normalization)
        normalized = (
            sentence.decode() for chunk in _chunks(sentences) for sentence in tokenizer.normalize(chunk).numpy()
        )
        return cls(train_bpe(normalized, vocabulary_size, seed), lowercase, normalization)

    def decode(self, ids):
        """Sentences without special tokens: int ids (..., T) to strings (...); as in `TextEncoder`, `<unk>` is written.

        "▁" becomes a space, and no space is left at either end.
        """
        return _without_marks(super().decode(ids))

    @staticmethod
    def word_of_piece(pieces):
        """Index of the word, as white space splits the decoded text, of each piece: list of str to list of int.

        A word begins with "▁". Pieces of "▁" alone belong to the word that follows, or at the end to the last word.
        """
        begins = [piece.startswith(SPACE_MARK) for piece in pieces]
        return _words(begins, [piece.strip(SPACE_MARK) != "" for piece in pieces])

    def save(self, path):
        """Writes the sentencepiece model; the normalisation is not in it."""
        with replacing(path) as temporary:
            temporary.write_bytes(self.tokenizer.model)

    @classmethod
    def load(cls, path, vocabulary_size=None, lowercase=True, normalization="NFKC"):
        """Reads what `save` wrote, or a sentencepiece model with the same special ids.

        Args:
            path: file.
            vocabulary_size: int, the number of ids that a checkpoint expects, or None (default) to take any.
            lowercase: bool, default True: as it was trained.
            normalization: "NFKC" (default), "NFC" or None: as it was trained.

        Raises:
            InputError: if there is no such file, or it cannot be used, or it has another number of pieces.
        """
        path = pathlib.Path(path)
        if not path.is_file():
            raise InputError(f"{path}: no such sentencepiece model")
        model = path.read_bytes()
        _check_size(path, len(vocabulary_of(model, path)), vocabulary_size)
        return cls(model, lowercase, normalization)


class FittedEncoder(PieceEncoder):
    """A `PieceEncoder` whose vocabulary is the most frequent tokens of the training text.

    Args:
        vocabulary: a `Vocabulary` of tokens.
        lowercase: bool, default True.
        normalization: "NFC" (default), "NFKC" or None, the Unicode normal form.
    """

    _tokenizer = SegmentTokenizer

    def __init__(self, vocabulary, lowercase=True, normalization="NFC"):
        super().__init__(self._tokenizer(lowercase, normalization), vocabulary)

    @classmethod
    def fit(cls, sentences, vocabulary_size, min_count=1, lowercase=True, normalization="NFC"):
        """Takes the most frequent tokens of the *training* sentences.

        Args:
            sentences: list of str.
            vocabulary_size: int, the most ids, the four special ones included.
            min_count: int, default 1: rarer tokens are left out.
            lowercase: bool, default True.
            normalization: "NFC" (default), "NFKC" or None.

        Raises:
            InputError: if no token is left.
        """
        tokenizer, counts = cls._tokenizer(lowercase, normalization), collections.Counter()
        for chunk in _chunks(sentences):
            for tokens in tokenizer.token_lists(chunk):
                counts.update(tokens)
        vocabulary = Vocabulary.fit(counts, vocabulary_size, min_count)
        if len(vocabulary) == len(SPECIAL_TOKENS):
            raise InputError(f"sentences: no token is in them often enough. Received: min_count={min_count}")
        return cls(vocabulary, lowercase, normalization)

    def save(self, path):
        """Writes the tokens, as `Vocabulary.save` does; the normalisation is not in the file."""
        self.vocabulary.save(path)

    @classmethod
    def load(cls, path, vocabulary_size=None, lowercase=True, normalization="NFC"):
        """Reads what `save` wrote.

        Args:
            path: file.
            vocabulary_size: int, the number of ids that a checkpoint expects, or None (default) to take any.
            lowercase: bool, default True: as it was fitted.
            normalization: "NFC" (default), "NFKC" or None: as it was fitted.

        Raises:
            InputError: if there is no such file, or it cannot be used, or it has another number of tokens.
        """
        vocabulary = Vocabulary.load(path)
        _check_size(path, len(vocabulary), vocabulary_size)
        return cls(vocabulary, lowercase, normalization)


class SegmentedEncoder(FittedEncoder):
    """Strings of tokens between spaces to ids, and back to text without the marks of the segmentation.

    A token that ends in "@@" goes on in the next one: "un@@ likely" is one word of two tokens. Where no token does,
    every token is a word. Arguments as of `FittedEncoder`.

    Example:

    >>> encoder = SegmentedEncoder.fit(["un@@ likely", "like@@ ly"], vocabulary_size=10)
    >>> encoder.decode(encoder.encode(["un@@ like@@ ly likely"])).numpy()
    array([b'unlikely likely'], dtype=object)
    >>> encoder.word_of_piece(["un@@", "like@@", "ly", "likely"])
    [0, 0, 0, 1]
    """

    def decode(self, ids):
        """Sentences without special tokens: int ids (..., T) to strings (...); as in `TextEncoder`, `<unk>` is written.

        Tokens are joined by a space, or after "@@" without one.
        """
        return tf.strings.strip(tf.strings.regex_replace(super().decode(ids), f"{CONTINUES}( |$)", ""))

    @staticmethod
    def word_of_piece(pieces):
        """Index of the word, as white space splits the decoded text, of each token: list of str to list of int.

        `<unk>` ends its word: whether the unknown token ended in "@@" is not known from its id.
        """
        ends = [not piece.endswith(CONTINUES) for piece in pieces]
        return _words([True, *ends[:-1]], [piece != CONTINUES for piece in pieces])

    def _segment_of_piece(self, pieces):
        return range(len(pieces))


class CharacterEncoder(FittedEncoder):
    """Strings to the ids of their Unicode characters, and back; a space is the token "▁".

    Arguments as of `FittedEncoder`.

    Example:

    >>> encoder = CharacterEncoder.fit(["to be"], vocabulary_size=20)
    >>> encoder.token_lists(["to be"])
    [['t', 'o', '▁', 'b', 'e']]
    >>> encoder.word_of_piece(["t", "o", "▁", "b", "e"])
    [0, 0, 1, 1, 1]
    """

    _tokenizer = CharacterTokenizer

    def decode(self, ids):
        """Sentences without special tokens: int ids (..., T) to strings (...); as in `TextEncoder`, `<unk>` is written.

        "▁" becomes a space, and no space is left at either end.
        """
        return _without_marks(super().decode(ids))

    @staticmethod
    def word_of_piece(pieces):
        """Index of the word, as white space splits the decoded text, of each character: list of str to list of int.

        A space belongs to the word that follows, or at the end to the last word, as in `SubwordEncoder`.
        """
        return SubwordEncoder.word_of_piece(pieces)


def words_of(sentence):
    """Words of a sentence that may be segmented with "@@ ": str to a list of str."""
    return re.sub(rf"{CONTINUES}\s+", "", sentence).split()


def _check_size(place, found, expected):
    if expected is not None and found != expected:
        raise InputError(f"{place}: the vocabulary has {found} entries, but the checkpoint expects {expected}.")


def _without_marks(strings):
    """Return sentences from pieces that are joined by spaces and mark the true spaces."""
    strings = tf.strings.regex_replace(strings, " ", "")
    return tf.strings.strip(tf.strings.regex_replace(strings, f"{SPACE_MARK}+", " "))


def _words(begins, has_text):
    """Return the word of each piece, given whether a space is before it and whether it has any text."""
    words, word, filled = [], 0, False
    for begin, text in zip(begins, has_text, strict=False):
        if begin and filled:
            word, filled = word + 1, False
        words.append(word)
        filled = filled or text
    # A space at the end has no word of its own.
    return words if filled else [max(min(index, word - 1), 0) for index in words]


def _chunks(sentences):
    return (sentences[start : start + _SENTENCES_AT_ONCE] for start in range(0, len(sentences), _SENTENCES_AT_ONCE))
