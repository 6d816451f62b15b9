"""Text as subwords, as tokens that are segmented already, or as characters: to ids and back, in graph.

Each encoder here is a `TextEncoder` and takes its place: `encode`, `encode_ragged`, `encode_numpy` and `decode` have
the shapes, the padding and the special ids of `applications.common.text`. In addition it names the pieces and knows
which word each piece belongs to, so that the weights on subwords can be summed to weights on words.

Shapes: B sentences, T pieces of the longest of them.
"""

import collections
import io
import pathlib
import re

import numpy as np
import sentencepiece
import tensorflow as tf
import tensorflow_text

from applications.common.errors import InputError
from applications.common.runs import replacing
from applications.common.text import END, PAD, SPECIAL_TOKENS, START, UNKNOWN, TextEncoder, Tokenizer, Vocabulary

SPACE_MARK = "▁"
CONTINUES = "@@"
NORMALIZATIONS = (None, "NFC", "NFKC")

_SPACE = r"[\s\p{Z}\p{Cc}]+"
# Text cannot hold the mark of a space and a space: it reads as one, as in sentencepiece itself.
_SPACE_OR_MARK = rf"[\s\p{{Z}}\p{{Cc}}{SPACE_MARK}]+"
_PYTHON_SPACE_OR_MARK = re.compile(rf"[\s\x00-\x1f\x7f-\x9f{SPACE_MARK}]+")
_SENTENCES_AT_ONCE = 4096


def train_bpe(sentences, vocabulary_size, seed=0):
    """Trains byte-pair encoding on sentences; the same sentences in the same order always give the same bytes.

    Nothing but white space is normalised here: give it sentences as `SubwordTokenizer.normalize` leaves them, or use
    `SubwordEncoder.fit`, which does that.

    Args:
        sentences: iterable of str, the training text, of any length each.
        vocabulary_size: int, the most pieces, the four special ones and every single character included. A small text
            gives fewer.
        seed: int, default 0, of sentencepiece's generator. Training reads every sentence in order and draws nothing.

    Returns:
        bytes, a sentencepiece model with the special ids and names of `applications.common.text`.

    Raises:
        InputError: if there is no text, or if its characters alone are more than `vocabulary_size`.
    """
    sentences = [_PYTHON_SPACE_OR_MARK.sub(" ", sentence).strip() for sentence in sentences]
    characters = set().union(*sentences) - {" "}
    if not characters:
        raise InputError("sentences: there is no text to train subwords on.")
    least = len(SPECIAL_TOKENS) + len({SPACE_MARK}) + len(characters)
    if vocabulary_size < least:
        raise InputError(
            f"vocabulary_size: the text has {len(characters)} different characters, which need at least {least} "
            f"pieces. Received: {vocabulary_size}"
        )
    sentencepiece.set_random_generator_seed(seed)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocabulary_size,
            hard_vocab_limit=False,
            character_coverage=1.0,
            byte_fallback=False,
            normalization_rule_name="identity",
            # Longer ones would be left out without a word.
            max_sentence_length=1 << 30,
            shuffle_input_sentence=False,
            num_threads=1,
            minloglevel=2,
            **{f"{name}_id": index for name, index in _ids_of_specials(PAD, UNKNOWN, START, END).items()},
            **{f"{name}_piece": token for name, token in _ids_of_specials(*SPECIAL_TOKENS).items()},
        )
    except RuntimeError as error:
        raise InputError(f"sentences: sentencepiece cannot be trained on them: {error}") from error
    return model.getvalue()


class SegmentTokenizer(Tokenizer):
    """Normalises sentences and splits them at white space, for text that is segmented already.

    Bytes that are not UTF-8 become U+FFFD, every run of white space or control characters becomes one space, and no
    space is left at either end. Nothing else is changed: unlike `Tokenizer`, this one keeps the treebank's escapes.

    Args:
        lowercase: bool, default True.
        normalization: "NFC" (default), "NFKC" or None, the Unicode normal form.

    Raises:
        ValueError: for any other normal form.
    """

    _space = _SPACE

    def __init__(self, lowercase=True, normalization="NFC"):
        super().__init__(lowercase=lowercase, split_punctuation=False)
        if normalization not in NORMALIZATIONS:
            raise ValueError(f"normalization is one of {NORMALIZATIONS}. Received: {normalization!r}")
        self.normalization = normalization

    def normalize(self, strings):
        """Normalised strings: (B,) strings to (B,) strings. Doing it twice changes nothing more."""
        strings = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors="replace")
        # At once, because lower-casing cuts a string at a NUL; and at the end, because NFKC brings new spaces.
        strings = self._normal_form(tf.strings.regex_replace(strings, self._space, " "))
        if self.lowercase:
            # NFKC brings new capitals, of a trademark sign for one; lower-casing can leave a letter decomposed.
            strings = self._normal_form(tf.strings.lower(strings, encoding="utf-8"))
        return tf.strings.strip(tf.strings.regex_replace(strings, self._space, " "))

    def tokenize(self, strings):
        """Tokens of each string: (B,) strings to a `tf.RaggedTensor` (B, None) of strings."""
        return tf.strings.split(self.normalize(strings))

    def _normal_form(self, strings):
        return strings if self.normalization is None else tensorflow_text.normalize_utf8(strings, self.normalization)


class SubwordTokenizer(SegmentTokenizer):
    """Splits sentences into the pieces of a sentencepiece model; "▁" begins the first piece of a word.

    Characters that the model does not know stay as they are, neighbouring ones in one piece.

    Args:
        model: bytes, a sentencepiece model.
        lowercase: bool, default True.
        normalization: "NFKC" (default), "NFC" or None.
    """

    _space = _SPACE_OR_MARK

    def __init__(self, model, lowercase=True, normalization="NFKC"):
        super().__init__(lowercase, normalization)
        self.model = model

    def tokenize(self, strings):
        """Pieces of each string: (B,) strings to a `tf.RaggedTensor` (B, None) of strings."""
        return self._pieces(self.normalize(strings))

    # The model is loaded by an operation of this function, not once when the object is made: what an operation outside
    # of functions has loaded is lost when a program sets TensorFlow's seed. A function is one copy in a SavedModel.
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def _pieces(self, strings):
        with tf.device("CPU:0"):
            return tensorflow_text.SentencepieceTokenizer(self.model, out_type=tf.string).tokenize(strings)


class CharacterTokenizer(SegmentTokenizer):
    """Splits sentences into Unicode characters; a space is the token "▁". Arguments as of `SegmentTokenizer`."""

    _space = _SPACE_OR_MARK

    def tokenize(self, strings):
        """Characters of each string: (B,) strings to a `tf.RaggedTensor` (B, None) of strings."""
        strings = tf.strings.regex_replace(self.normalize(strings), " ", SPACE_MARK)
        return tf.strings.unicode_split(strings, "UTF-8")


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


class SubwordEncoder(PieceEncoder):
    """Strings to the ids of a sentencepiece model, and back.

    `decode` gives text with its spaces back. In a report, a run of unknown characters is one unknown token.

    Args:
        model: bytes, a sentencepiece model; its special ids are those of `applications.common.text`, as in what
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
        vocabulary = _vocabulary_of(model, "model")
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
        _check_size(path, len(_vocabulary_of(model, path)), vocabulary_size)
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


def _ids_of_specials(pad, unknown, start, end):
    """Return a dictionary with sentencepiece's names of the four special pieces."""
    return {"pad": pad, "unk": unknown, "bos": start, "eos": end}


def _vocabulary_of(model, place):
    """Return the `Vocabulary` of a sentencepiece model; `InputError` if the model cannot be used."""
    processor = sentencepiece.SentencePieceProcessor()
    try:
        # Of no bytes at all sentencepiece makes an empty model.
        if not model or not processor.LoadFromSerializedProto(model):
            raise RuntimeError("empty")
    except (RuntimeError, TypeError) as error:
        raise InputError(f"{place}: this is not a sentencepiece model.") from error
    expected = _ids_of_specials(PAD, UNKNOWN, START, END)
    found = {name: getattr(processor, f"{name}_id")() for name in expected}
    if found != expected:
        raise InputError(f"{place}: the special ids of the model must be {expected}. Found: {found}")
    indices = range(len(SPECIAL_TOKENS), processor.get_piece_size())
    if any(processor.is_byte(index) for index in indices):
        raise InputError(f"{place}: the model writes unknown characters as bytes; train it without byte_fallback.")
    try:
        return Vocabulary([processor.id_to_piece(index) for index in indices])
    except ValueError as error:
        raise InputError(f"{place}: the model has a piece that cannot be used. {error}") from error


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
