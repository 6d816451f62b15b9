"""Sentences to tokens between spaces, to subwords or to characters, in graph, after one normalisation.

Shapes: B sentences.
"""

import tensorflow as tf
import tensorflow_text

from applications.text.text import Tokenizer

SPACE_MARK = "▁"
NORMALIZATIONS = (None, "NFC", "NFKC")
_SPACE = r"[\s\p{Z}\p{Cc}]+"
# Text cannot hold the mark of a space and a space: it reads as one, as in sentencepiece itself.
_SPACE_OR_MARK = rf"[\s\p{{Z}}\p{{Cc}}{SPACE_MARK}]+"


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
