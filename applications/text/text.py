"""Converts strings to word ids and back in the TensorFlow graph, so that exported models accept and return strings.

Shapes: B sentences, T tokens in the longest sentence.
"""

import collections
import dataclasses
import pathlib

import numpy as np
import tensorflow as tf
import tensorflow_text

from applications.common.errors import InputError
from applications.common.progress import progress
from applications.common.runs import write_text_atomically
from applications.text.rows import IdRows

PAD, UNKNOWN, START, END = range(4)
SPECIAL_TOKENS = ("<pad>", "<unk>", "<start>", "<end>")

_SPACE = r"[\s\p{Z}\p{Cc}]+"
# Some corpora contain the token "<unk>", which must not be split.
_PUNCTUATION = r"<unk>|[\p{P}\p{S}]"
_TREEBANK_ESCAPES = (
    (r"(?i)-lrb-", "("),
    (r"(?i)-rrb-", ")"),
    (r"(?i)-lsb-", "["),
    (r"(?i)-rsb-", "]"),
    (r"(?i)-lcb-", "{"),
    (r"(?i)-rcb-", "}"),
    ("``|''", '"'),
)
_CHUNK = 4096


class Tokenizer(tf.Module):
    """Splits sentences into word and punctuation tokens.

    Invalid UTF-8 becomes U+FFFD, and text is normalised to NFC. Escapes of the Penn Treebank, such as ``-lrb-``, become
    the characters that they denote.

    Args:
        lowercase: Whether to convert text to lower case.
        split_punctuation: Whether every punctuation mark or symbol is a separate token. Use `False` for text that is
            already tokenized.
    """

    def __init__(self, lowercase=True, split_punctuation=True):
        super().__init__(name="tokenizer")
        self.lowercase = lowercase
        self.split_punctuation = split_punctuation

    def tokenize(self, strings):
        """Split strings (B,) into tokens, a `tf.RaggedTensor` (B, None) of strings."""
        strings = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors="replace")
        # Without this replacement, lower-casing would truncate a string at a NUL character.
        strings = tf.strings.regex_replace(strings, r"\p{Cc}", " ")
        if self.lowercase:
            strings = tf.strings.lower(strings, encoding="utf-8")
        # Lower-casing can decompose letters, so normalize afterwards.
        strings = tensorflow_text.normalize_utf8(strings, "NFC")
        for escape, character in _TREEBANK_ESCAPES:
            strings = tf.strings.regex_replace(strings, escape, character)
        if self.split_punctuation:
            return tensorflow_text.regex_split(strings, f"{_SPACE}|{_PUNCTUATION}", _PUNCTUATION)
        return tensorflow_text.regex_split(strings, _SPACE)

    def token_lists(self, strings):
        """Split each string of a list into a list of tokens. Works only in eager mode."""
        rows = (row for chunk in chunks(strings) for row in self.tokenize(tf.constant(chunk, tf.string)).to_list())
        return [[token.decode() for token in row] for row in rows]

    def count(self, strings):
        """Return a `collections.Counter` of the tokens in a sequence of str. Works only in eager mode."""
        counts = collections.Counter()
        for chunk in chunks(strings):
            counts.update(self.tokenize(tf.constant(chunk, tf.string)).flat_values.numpy())
        return collections.Counter({token.decode(): count for token, count in counts.items()})


class Vocabulary:
    """Maps tokens to ids: `<pad>` is 0, `<unk>` is 1, `<start>` is 2, `<end>` is 3, and words begin at 4.

    Args:
        words: List of distinct, non-empty words without white space, in the order of their ids.

    Attributes:
        tokens: List of all tokens, in the order of their ids.
        ids: Dictionary that maps tokens to ids.
    """

    def __init__(self, words):
        self.tokens = [*SPECIAL_TOKENS, *words]
        self.ids = {token: index for index, token in enumerate(self.tokens)}

    def __len__(self):
        return len(self.tokens)

    @classmethod
    def fit(cls, counts, max_size, min_count=1):
        """Return the vocabulary of the most frequent words, in alphabetical order if their counts are equal.

        `counts` maps the tokens of the *training* text to their counts. `max_size` includes the four special tokens.
        """
        words = [(-count, word) for word, count in counts.items() if count >= min_count and word not in SPECIAL_TOKENS]
        return cls([word for _, word in sorted(words)[: max_size - len(SPECIAL_TOKENS)]])

    def save(self, path):
        """Write a UTF-8 text file with one token per line, in the order of the ids."""
        write_text_atomically(path, "".join(f"{token}\n" for token in self.tokens))

    @classmethod
    def load(cls, path):
        """Read a file that `save` wrote; raise `InputError` if it is not a valid vocabulary."""
        path = pathlib.Path(path)
        if not path.is_file():
            raise InputError(f"{path}: no such vocabulary")
        try:
            tokens = path.read_bytes().decode().removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: a vocabulary must be UTF-8 text") from error
        if tuple(tokens[: len(SPECIAL_TOKENS)]) != SPECIAL_TOKENS:
            raise InputError(f"{path}: a vocabulary must begin with the lines {', '.join(SPECIAL_TOKENS)}")
        wrong = [token for token, count in collections.Counter(tokens).items() if count > 1 or token.split() != [token]]
        if wrong:
            raise InputError(f"{path}: {wrong[0]!r} is empty, contains white space, or occurs twice")
        return cls(tokens[len(SPECIAL_TOKENS) :])


@dataclasses.dataclass
class EncodingReport:
    """Counts of truncated sentences, and of unknown and all tokens after truncation."""

    num_truncated: int
    num_unknown: int
    num_tokens: int


class TextEncoder(tf.Module):
    """Converts strings to ids and back. It is a `tf.Module`, so a SavedModel can contain it."""

    def __init__(self, tokenizer, vocabulary):
        super().__init__(name="text_encoder")
        self.tokenizer = tokenizer
        self.vocabulary = vocabulary
        self.vocabulary_size = len(vocabulary)
        # String tensors must be on the CPU.
        with tf.device("CPU:0"):
            self.token_of_id = tf.constant(vocabulary.tokens)
            pairs = tf.lookup.KeyValueTensorInitializer(self.token_of_id, tf.range(len(vocabulary), dtype=tf.int64))
            self.id_of_token = tf.lookup.StaticHashTable(pairs, default_value=UNKNOWN)

    def encode_ragged(self, strings):
        """Convert strings (B,) to an int32 `tf.RaggedTensor` of ids (B, None), without special tokens."""
        tokens = self.tokenizer.tokenize(strings)
        return tf.cast(tokens.with_flat_values(self.id_of_token.lookup(tokens.flat_values)), tf.int32)

    def encode(self, strings, max_length=None):
        """Convert strings (B,) to at most `max_length` ids each: int32 (B, T), T >= 1, padded with 0."""
        padded = self.encode_ragged(strings)[:, :max_length].to_tensor(default_value=PAD)
        missing = tf.maximum(1 - tf.shape(padded)[1], 0)
        return tf.pad(padded, [[0, 0], [0, missing]], constant_values=PAD)

    def encode_targets(self, strings, max_length):
        """Convert strings (B,) to decoder inputs (B, T), targets (B, T) and numbers of target tokens (B,).
        Inputs begin with `<start>`, and targets end with `<end>`. Strings are truncated to `max_length` words."""
        ids = self.encode(strings, max_length)
        lengths = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)
        padded = tf.pad(ids, [[0, 0], [0, 1]])
        target = tf.where(tf.range(tf.shape(padded)[1])[None] == lengths[:, None], END, padded)
        return tf.concat([tf.fill([tf.shape(ids)[0], 1], START), ids], axis=1), target, lengths + 1

    def encode_numpy(self, strings, max_length=None):
        """Convert the strings of a data set to `IdRows` and an `EncodingReport`, in eager mode."""
        report = EncodingReport(num_truncated=0, num_unknown=0, num_tokens=0)

        def encoded():
            for chunk in chunks(strings):
                untruncated = self.encode_ragged(tf.constant(chunk, tf.string))
                ids = untruncated[:, :max_length]
                report.num_truncated += int(np.sum(ids.row_lengths() < untruncated.row_lengths()))
                values = ids.flat_values.numpy()
                report.num_unknown += int(np.sum(values == UNKNOWN))
                report.num_tokens += len(values)
                yield values, ids.row_lengths().numpy()

        return IdRows.joined(encoded()), report

    def tokens(self, ids):
        """Convert integer ids to tokens, a string tensor of the same shape."""
        with tf.device("CPU:0"):
            return tf.gather(self.token_of_id, ids)

    def decode(self, ids):
        """Convert integer ids (..., T) to sentences, strings of shape (...).

        A sentence contains the tokens before the first `<end>`, joined by spaces, without `<pad>` and `<start>`.
        Unknown words appear as `<unk>`.
        """
        ids = tf.cast(ids, tf.int32)
        is_end = tf.cast(tf.equal(ids, END), tf.int32)
        keep = tf.equal(tf.cumsum(is_end, axis=-1), 0) & tf.not_equal(ids, PAD) & tf.not_equal(ids, START)
        shape = tf.shape(ids)
        rows = tf.stack([tf.reduce_prod(shape[:-1]), shape[-1]])
        with tf.device("CPU:0"):
            words = tf.ragged.boolean_mask(tf.reshape(self.tokens(ids), rows), tf.reshape(keep, rows))
            sentences = tf.reshape(tf.strings.reduce_join(words, axis=-1, separator=" "), shape[:-1])
        return tf.ensure_shape(sentences, ids.shape[:-1])


def chunks(strings):
    """Yield slices of `_CHUNK` strings, and report progress."""
    return (strings[start : start + _CHUNK] for start in progress(range(0, len(strings), _CHUNK), "encoding"))
