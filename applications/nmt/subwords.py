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
from applications.text.text import SPECIAL_TOKENS, UNKNOWN, TextEncoder, Vocabulary, chunks

CONTINUES = "@@"


class PieceEncoder(TextEncoder):
    """What the encoders of this file share: a `TextEncoder` that can name its pieces, of which "▁" marks the spaces.

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

    def decode(self, ids):
        """Sentences without special tokens and marks: int ids (..., T) to strings (...); `<unk>` is written."""
        return self._without_marks(super().decode(ids))

    def pieces(self, ids):
        """Pieces of int ids (T,), a list of str. Eager only."""
        return [self.vocabulary.tokens[index] for index in ids]

    def words_of_pieces(self, sentences):
        """Index of the word that each piece of a sentence is of: list of str to a list of int arrays. Eager only.

        The words are those that `words_of` finds in the sentence as it stands. Normalisation can cut one in two, or
        leave nothing of it, and a piece that is read can be unknown.
        """
        found = []
        for chunk in chunks(sentences):
            segments = [sentence.split() for sentence in chunk]
            normalized = self.tokenizer.normalize(tf.constant([x for row in segments for x in row], tf.string))
            normalized = iter(normalized.numpy())
            for row, pieces in zip(segments, self.tokenizer.token_lists(chunk), strict=True):
                # The word of each segment that normalisation leaves.
                words, word = [], 0
                for segment in row:
                    words += [word] * len(next(normalized).split())
                    word += not segment.endswith(CONTINUES)
                found.append(np.array([words[index] for index in self._segment_of_piece(pieces)], int))
        return found

    @staticmethod
    def _without_marks(strings):
        """Sentences from pieces that are joined by spaces: only "▁" is a space, and none is left at either end."""
        strings = tf.strings.regex_replace(strings, " ", "")
        return tf.strings.strip(tf.strings.regex_replace(strings, f"{SPACE_MARK}+", " "))

    @staticmethod
    def _segment_of_piece(pieces):
        """Index of the segment between spaces of each piece, a list of int.

        Pieces of "▁" alone belong to the segment that follows, or at the end to the last one.
        """
        found, segment, filled = [], 0, False
        for piece in pieces:
            if piece.startswith(SPACE_MARK) and filled:
                segment, filled = segment + 1, False
            found.append(segment)
            filled = filled or piece.strip(SPACE_MARK) != ""
        # A space at the end has no segment of its own.
        return found if filled else [max(min(index, segment - 1), 0) for index in found]


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
    >>> encoder.tokenizer.token_lists(["The cat"]), encoder.words_of_pieces(["The cat"])
    ([['▁the', '▁cat']], [array([0, 1])])
    >>> encoder.decode(encoder.encode(["The  cat"])).numpy()
    array([b'the cat'], dtype=object)
    """

    def __init__(self, model, lowercase=True, normalization="NFKC"):
        vocabulary = vocabulary_of(model, "model")
        super().__init__(SubwordTokenizer(model, lowercase, normalization), vocabulary)

    @classmethod
    def fit(cls, sentences, vocabulary_size, lowercase=True, normalization="NFKC"):
        """Trains on the normalised *training* sentences, a list of str; the rest as in `train_bpe`."""
        tokenizer = SegmentTokenizer(lowercase, normalization)
        normalized = (
            sentence.decode() for chunk in chunks(sentences) for sentence in tokenizer.normalize(chunk).numpy()
        )
        return cls(train_bpe(normalized, vocabulary_size), lowercase, normalization)

    def save(self, path):
        """Writes the sentencepiece model; the normalisation is not in it."""
        with replacing(path) as temporary:
            temporary.write_bytes(self.tokenizer.model)

    @classmethod
    def load(cls, path, lowercase=True, normalization="NFKC"):
        """Reads what `save` wrote, or a sentencepiece model with the same special ids.

        Args:
            path: file.
            lowercase: bool, default True: as it was trained.
            normalization: "NFKC" (default), "NFC" or None: as it was trained.

        Raises:
            InputError: if there is no such file, or it cannot be used.
        """
        path = pathlib.Path(path)
        if not path.is_file():
            raise InputError(f"{path}: no such sentencepiece model")
        model = path.read_bytes()
        # A message is to name the file.
        vocabulary_of(model, path)
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
    def fit(cls, sentences, vocabulary_size, lowercase=True, normalization="NFC"):
        """Takes the most frequent tokens of the *training* sentences.

        Args:
            sentences: list of str.
            vocabulary_size: int, the most ids, the four special ones included.
            lowercase: bool, default True.
            normalization: "NFC" (default), "NFKC" or None.

        Raises:
            InputError: if there is no token.
        """
        tokenizer, counts = cls._tokenizer(lowercase, normalization), collections.Counter()
        for chunk in chunks(sentences):
            for tokens in tokenizer.token_lists(chunk):
                counts.update(tokens)
        vocabulary = Vocabulary.fit(counts, vocabulary_size)
        if len(vocabulary) == len(SPECIAL_TOKENS):
            raise InputError("sentences: there is no token in them.")
        return cls(vocabulary, lowercase, normalization)

    def save(self, path):
        """Writes the tokens, as `Vocabulary.save` does; the normalisation is not in the file."""
        self.vocabulary.save(path)

    @classmethod
    def load(cls, path, lowercase=True, normalization="NFC"):
        """Reads what `save` wrote.

        Args:
            path: file.
            lowercase: bool, default True: as it was fitted.
            normalization: "NFC" (default), "NFKC" or None: as it was fitted.

        Raises:
            InputError: if there is no such file, or it cannot be used.
        """
        return cls(Vocabulary.load(path), lowercase, normalization)


class SegmentedEncoder(FittedEncoder):
    """Strings of tokens between spaces to ids, and back to text without the marks of the segmentation.

    A token that ends in "@@" goes on in the next one: "un@@ likely" is one word of two tokens. Where no token does,
    every token is a word. Arguments as of `FittedEncoder`.

    Example:

    >>> encoder = SegmentedEncoder.fit(["un@@ likely", "like@@ ly"], vocabulary_size=10)
    >>> encoder.decode(encoder.encode(["un@@ like@@ ly likely"])).numpy()
    array([b'unlikely likely'], dtype=object)
    >>> encoder.words_of_pieces(["un@@ like@@ ly likely"])
    [array([0, 0, 0, 1])]
    """

    @staticmethod
    def _without_marks(strings):
        return tf.strings.strip(tf.strings.regex_replace(strings, f"{CONTINUES}( |$)", ""))

    @staticmethod
    def _segment_of_piece(pieces):
        return range(len(pieces))


class CharacterEncoder(FittedEncoder):
    """Strings to the ids of their Unicode characters, and back; a space is the token "▁".

    Arguments as of `FittedEncoder`.

    Example:

    >>> encoder = CharacterEncoder.fit(["to be"], vocabulary_size=20)
    >>> encoder.tokenizer.token_lists(["to be"]), encoder.words_of_pieces(["to be"])
    ([['t', 'o', '▁', 'b', 'e']], [array([0, 0, 1, 1, 1])])
    """

    _tokenizer = CharacterTokenizer


def words_of(sentence):
    """Words of a sentence that may be segmented with "@@ ": str to a list of str."""
    return re.sub(rf"{CONTINUES}\s+", "", sentence).split()
