"""Text as pieces: of a joint SentencePiece model, or words between spaces.

Each encoder is a `TextEncoder` that names its pieces and knows which word each piece belongs to, so that the weights on
pieces can be summed to weights on words.

Shapes: B sentences, T pieces of the longest of them.
"""

import io

import numpy as np
import sentencepiece
import tensorflow as tf
import tensorflow_text

from applications.common.errors import InputError
from applications.common.shown import evenly
from applications.text.rows import take_rows
from applications.text.text import END, PAD, SPECIAL_TOKENS, START, UNKNOWN, TextEncoder, Tokenizer, Vocabulary, chunks

# Sentences that a SentencePiece model is trained on.
MOST_SENTENCES = 1_000_000
SPACE_MARK = "▁"


class PieceTokenizer(Tokenizer):
    """Normalises sentences and splits them at white space, or into the pieces of a SentencePiece model.

    Bytes that are not UTF-8 become U+FFFD, text is brought to NFKC, every run of white space or control characters
    becomes one space, and no space is left at either end. Unlike `Tokenizer`, it keeps the treebank's escapes.

    Args:
        lowercase: Whether text is lower-cased.
        model: SentencePiece model, bytes, or `None`. "▁" begins the first piece of a word; neighbouring characters that
            the model does not know are one piece.
    """

    def __init__(self, lowercase=True, model=None):
        super().__init__(lowercase=lowercase, split_punctuation=False)
        self.model = model
        # Text cannot hold the mark of a space and a space: it reads as one, as in SentencePiece itself.
        self._space = rf"[\s\p{{Z}}\p{{Cc}}{'' if model is None else SPACE_MARK}]+"

    def normalize(self, strings):
        """Return normalised strings (B,). Doing it twice changes nothing more."""
        strings = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors="replace")
        # At once, because lower-casing cuts a string at a NUL; and at the end, because NFKC brings new spaces.
        strings = tensorflow_text.normalize_utf8(tf.strings.regex_replace(strings, self._space, " "), "NFKC")
        if self.lowercase:
            # NFKC brings new capitals, of a trademark sign for one; lower-casing can leave a letter decomposed.
            strings = tensorflow_text.normalize_utf8(tf.strings.lower(strings, encoding="utf-8"), "NFKC")
        return tf.strings.strip(tf.strings.regex_replace(strings, self._space, " "))

    def tokenize(self, strings):
        normalized = self.normalize(strings)
        return tf.strings.split(normalized) if self.model is None else self._pieces(normalized)

    # An operation of this function loads the model: one that is loaded outside of functions is lost when a program sets
    # TensorFlow's seed. A function is one copy in a SavedModel.
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def _pieces(self, strings):
        with tf.device("CPU:0"):
            return tensorflow_text.SentencepieceTokenizer(self.model, out_type=tf.string).tokenize(strings)


class PieceEncoder(TextEncoder):
    """A `TextEncoder` that can name its pieces; a special token written out in a text never has the special id."""

    def encode_ragged(self, strings):
        ids = super().encode_ragged(strings)
        return ids.with_flat_values(tf.where(ids.flat_values < len(SPECIAL_TOKENS), UNKNOWN, ids.flat_values))

    def pieces(self, ids):
        """Return the pieces of int ids (T,), a list of str."""
        return [self.vocabulary.tokens[index] for index in ids]

    def words_of_pieces(self, sentences):
        """Return the index of the word, between spaces, of each piece, an int array a sentence. Eager only."""
        rows = [sentence.split() for sentence in sentences]
        pieces = self.tokenizer.tokenize(tf.constant([word for row in rows for word in row], tf.string))
        # Normalisation can leave nothing of a word.
        counts = np.split(pieces.row_lengths().numpy(), np.cumsum([len(row) for row in rows])[:-1])
        return [np.repeat(np.arange(len(row)), count) for row, count in zip(rows, counts, strict=True)]


class SubwordEncoder(PieceEncoder):
    """Strings to the ids of a SentencePiece model, and back.

    `decode` gives text with its spaces back. In a report, a run of unknown characters is one unknown token.

    Example:

    >>> encoder = SubwordEncoder.fit(["the cat sat", "the mat"], vocabulary_size=40)
    >>> encoder.tokenizer.token_lists(["The cat"]), encoder.words_of_pieces(["The cat"])
    ([['▁the', '▁cat']], [array([0, 1])])
    >>> encoder.decode(encoder.encode(["The  cat"])).numpy()
    array([b'the cat'], dtype=object)
    """

    def __init__(self, model, lowercase=True):
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces = [processor.id_to_piece(index) for index in range(len(SPECIAL_TOKENS), len(processor))]
        super().__init__(PieceTokenizer(lowercase, model), Vocabulary(pieces))

    @classmethod
    def fit(cls, sentences, vocabulary_size, lowercase=True):
        """Train byte-pair encoding on *training* sentences; in the same order they give the same model.

        Of more than `MOST_SENTENCES`, which SentencePiece has in memory, as many are read, spread evenly.
        `vocabulary_size` counts the special pieces and every single character; too small a one is an `InputError`.
        """
        tokenizer = PieceTokenizer(lowercase)
        sentences = take_rows(sentences, evenly(len(sentences), MOST_SENTENCES))
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
        return cls(model.getvalue(), lowercase)

    def decode(self, ids):
        """Return the sentences (...) of int ids (..., T), without special tokens and marks; `<unk>` is written."""
        pieces = tf.strings.regex_replace(super().decode(ids), " ", "")
        return tf.strings.strip(tf.strings.regex_replace(pieces, f"{SPACE_MARK}+", " "))


class WordEncoder(PieceEncoder):
    """Strings of words between spaces to ids, and back."""

    def __init__(self, vocabulary, lowercase=True):
        super().__init__(PieceTokenizer(lowercase), vocabulary)

    @classmethod
    def fit(cls, sentences, vocabulary_size, lowercase=True):
        """Take the most frequent words of *training* sentences, up to `vocabulary_size` ids."""
        return cls(Vocabulary.fit(PieceTokenizer(lowercase).count(sentences), vocabulary_size), lowercase)
