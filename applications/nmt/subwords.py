"""Text as pieces: those of a joint SentencePiece model, or words, which may be segmented with "@@ " already.

Each encoder is a `TextEncoder` that names its pieces and knows which word each piece belongs to, so that the weights on
pieces can be summed to weights on words.

Shapes: B sentences, T pieces of the longest of them.
"""

import collections
import io
import re

import numpy as np
import sentencepiece
import tensorflow as tf
import tensorflow_text

from applications.common.errors import InputError
from applications.common.runs import replacing
from applications.text.text import (
    END,
    PAD,
    SPECIAL_TOKENS,
    START,
    UNKNOWN,
    TextEncoder,
    Tokenizer,
    Vocabulary,
    chunks,
)

CONTINUES = "@@"
SPACE_MARK = "▁"


class WordTokenizer(Tokenizer):
    """Normalises sentences and splits them at white space.

    Bytes that are not UTF-8 become U+FFFD, every run of white space or control characters becomes one space, and no
    space is left at either end. Nothing else is changed: unlike `Tokenizer`, this one keeps the treebank's escapes.

    Args:
        lowercase: bool, default True.
        normalization: "NFC" (default), "NFKC" or None, the Unicode normal form.
    """

    _space = r"[\s\p{Z}\p{Cc}]+"

    def __init__(self, lowercase=True, normalization="NFC"):
        super().__init__(lowercase=lowercase, split_punctuation=False)
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


class SubwordTokenizer(WordTokenizer):
    """Splits sentences into the pieces of a SentencePiece model; "▁" begins the first piece of a word.

    Characters that the model does not know stay as they are, neighbouring ones in one piece.

    Args:
        model: bytes, a SentencePiece model.
        lowercase: bool, default True.
        normalization: "NFKC" (default), "NFC" or None.
    """

    # Text cannot hold the mark of a space and a space: it reads as one, as in SentencePiece itself.
    _space = rf"[\s\p{{Z}}\p{{Cc}}{SPACE_MARK}]+"

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


class PieceEncoder(TextEncoder):
    """A `TextEncoder` that can name its pieces.

    A special token written out in a text is a word like any other, never the special id.
    """

    def encode_ragged(self, strings):
        """Ids of all pieces: (B,) strings to an int32 `tf.RaggedTensor` (B, None), nothing cut, nothing added."""
        ids = super().encode_ragged(strings)
        return ids.with_flat_values(tf.where(ids.flat_values < len(SPECIAL_TOKENS), UNKNOWN, ids.flat_values))

    def decode(self, ids):
        """Sentences without special tokens and marks: int ids (..., T) to strings (...); `<unk>` is written."""
        return tf.strings.strip(self._without_marks(super().decode(ids)))

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


class SubwordEncoder(PieceEncoder):
    """Strings to the ids of a SentencePiece model, and back.

    `decode` gives text with its spaces back. In a report, a run of unknown characters is one unknown token.

    Args:
        model: bytes, a SentencePiece model as `fit` trains it.
        lowercase: bool, default True.
        normalization: "NFKC" (default), "NFC" or None, the Unicode normal form.

    Example:

    >>> encoder = SubwordEncoder.fit(["the cat sat", "the mat"], vocabulary_size=40)
    >>> encoder.tokenizer.token_lists(["The cat"]), encoder.words_of_pieces(["The cat"])
    ([['▁the', '▁cat']], [array([0, 1])])
    >>> encoder.decode(encoder.encode(["The  cat"])).numpy()
    array([b'the cat'], dtype=object)
    """

    def __init__(self, model, lowercase=True, normalization="NFKC"):
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces = [processor.id_to_piece(index) for index in range(len(SPECIAL_TOKENS), len(processor))]
        super().__init__(SubwordTokenizer(model, lowercase, normalization), Vocabulary(pieces))

    @classmethod
    def fit(cls, sentences, vocabulary_size, lowercase=True, normalization="NFKC"):
        """Trains byte-pair encoding on a list of *training* sentences; in the same order they give the same model.

        `vocabulary_size` counts the special pieces and every single character; too small a one is an `InputError`.
        """
        tokenizer = WordTokenizer(lowercase, normalization)
        texts = (text.decode() for chunk in chunks(sentences) for text in tokenizer.normalize(chunk).numpy())
        texts = (" ".join(text.replace(SPACE_MARK, " ").split()) for text in texts)
        specials = {}
        for kind, index in (("pad", PAD), ("unk", UNKNOWN), ("bos", START), ("eos", END)):
            specials |= {f"{kind}_id": index, f"{kind}_piece": SPECIAL_TOKENS[index]}
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=texts,
                model_writer=model,
                model_type="bpe",
                vocab_size=vocabulary_size,
                hard_vocab_limit=False,
                character_coverage=1.0,
                normalization_rule_name="identity",
                # Longer ones would be left out without a word.
                max_sentence_length=1 << 30,
                shuffle_input_sentence=False,
                num_threads=1,
                minloglevel=2,
                **specials,
            )
        except RuntimeError as error:
            message = f"--vocabulary-size {vocabulary_size}: SentencePiece cannot be trained: {error}"
            raise InputError(message) from error
        return cls(model.getvalue(), lowercase, normalization)

    def save(self, path):
        """Writes the SentencePiece model; the normalisation is not in it."""
        with replacing(path) as temporary:
            temporary.write_bytes(self.tokenizer.model)

    @classmethod
    def load(cls, path, **options):
        """Reads what `save` wrote; the options are those of training."""
        return cls(path.read_bytes(), **options)

    @staticmethod
    def _without_marks(strings):
        """Sentences from pieces that are joined by spaces: only "▁" is a space."""
        return tf.strings.regex_replace(tf.strings.regex_replace(strings, " ", ""), f"{SPACE_MARK}+", " ")

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


class WordEncoder(PieceEncoder):
    """Strings of tokens between spaces to ids, and back to text without the marks of a segmentation.

    A token that ends in "@@" goes on in the next one: "un@@ likely" is one word of two tokens. Where no token does,
    every token is a word.

    Args:
        vocabulary: a `Vocabulary` of tokens.
        lowercase: bool, default True.
        normalization: "NFC" (default), "NFKC" or None, the Unicode normal form.

    Example:

    >>> encoder = WordEncoder.fit(["un@@ likely", "like@@ ly"], vocabulary_size=10)
    >>> encoder.decode(encoder.encode(["un@@ like@@ ly likely"])).numpy()
    array([b'unlikely likely'], dtype=object)
    >>> encoder.words_of_pieces(["un@@ like@@ ly likely"])
    [array([0, 0, 0, 1])]
    """

    def __init__(self, vocabulary, lowercase=True, normalization="NFC"):
        super().__init__(WordTokenizer(lowercase, normalization), vocabulary)

    @classmethod
    def fit(cls, sentences, vocabulary_size, lowercase=True, normalization="NFC"):
        """Takes the most frequent tokens of a list of *training* sentences; none at all is an `InputError`.

        `vocabulary_size` is the most ids, the four special ones included.
        """
        tokenizer, counts = WordTokenizer(lowercase, normalization), collections.Counter()
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
    def load(cls, path, **options):
        """Reads what `save` wrote; the options are those of fitting."""
        return cls(Vocabulary.load(path), **options)

    @staticmethod
    def _without_marks(strings):
        return tf.strings.regex_replace(strings, f"{CONTINUES}( |$)", "")

    @staticmethod
    def _segment_of_piece(pieces):
        return range(len(pieces))


def words_of(sentence):
    """Words of a sentence that may be segmented with "@@ ": str to a list of str."""
    return re.sub(rf"{CONTINUES}\s+", "", sentence).split()
