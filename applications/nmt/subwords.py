"""Split text into words or into SentencePiece subwords.

Each encoder is a `TextEncoder` that also maps pieces to words. `merge_to_words` can then convert attention weights on
pieces to weights on words.

Shapes: B sentences, T pieces of the longest sentence.
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

MOST_SENTENCES = 1_000_000
SPACE_MARK = "▁"


class PieceTokenizer(Tokenizer):
    """Normalises sentences, and splits sentences into SentencePiece pieces or, without `model`, into words.

    Normalisation:

    - Invalid UTF-8 becomes U+FFFD, and text is normalised to NFKC.
    - A run of white space or control characters becomes one space. Both ends are stripped.
    - Treebank escapes such as -LRB- are kept, unlike in `Tokenizer`.

    Args:
        lowercase: Whether to lower-case text.
        model: Bytes of a SentencePiece model, or `None`. "▁" starts the first piece of a word. Adjacent unknown
            characters form one piece.
    """

    def __init__(self, lowercase=True, model=None):
        super().__init__(lowercase=lowercase, split_punctuation=False)
        self.model = model
        # SentencePiece writes a space as "▁", so "▁" in a text counts as a space.
        self._space = rf"[\s\p{{Z}}\p{{Cc}}{'' if model is None else SPACE_MARK}]+"

    def normalize(self, strings):
        """Return normalised strings (B,). Normalising the result again changes nothing."""
        strings = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors="replace")
        # `lower` would truncate at NUL, so replace NUL first. The last line replaces spaces that NFKC creates.
        strings = tensorflow_text.normalize_utf8(tf.strings.regex_replace(strings, self._space, " "), "NFKC")
        if self.lowercase:
            # Without NFKC before `lower`, a trademark sign becomes TM. Without NFKC after it, j and a caron stay apart.
            strings = tensorflow_text.normalize_utf8(tf.strings.lower(strings, encoding="utf-8"), "NFKC")
        return tf.strings.strip(tf.strings.regex_replace(strings, self._space, " "))

    def tokenize(self, strings):
        normalized = self.normalize(strings)
        return tf.strings.split(normalized) if self.model is None else self._pieces(normalized)

    # Do not load the model outside the `tf.function`: setting TensorFlow's seed would discard the model.
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def _pieces(self, strings):
        with tf.device("CPU:0"):
            return tensorflow_text.SentencepieceTokenizer(self.model, out_type=tf.string).tokenize(strings)


class PieceEncoder(TextEncoder):
    """A `TextEncoder` with methods for pieces. A special token in a text gets the id of `<unk>`."""

    def encode_ragged(self, strings):
        ids = super().encode_ragged(strings)
        return ids.with_flat_values(tf.where(ids.flat_values < len(SPECIAL_TOKENS), UNKNOWN, ids.flat_values))

    def pieces(self, ids):
        """Return the pieces of int ids (T,) as a list of strings."""
        return [self.vocabulary.tokens[index] for index in ids]

    def words_of_pieces(self, sentences):
        """Return the word index of each piece, in one int array per sentence. Eager mode only."""
        rows = [sentence.split() for sentence in sentences]
        pieces = self.tokenizer.tokenize(tf.constant([word for row in rows for word in row], tf.string))
        # Normalisation can make a word empty; such a word has no pieces.
        counts = np.split(pieces.row_lengths().numpy(), np.cumsum([len(row) for row in rows])[:-1])
        return [np.repeat(np.arange(len(row)), count) for row, count in zip(rows, counts, strict=True)]


class SubwordEncoder(PieceEncoder):
    """Convert between strings and the ids of a SentencePiece model.

    `decode` restores spaces. Adjacent unknown characters are encoded as one unknown token.

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
        """Train byte-pair encoding on *training* sentences.

        The same sentences in the same order give the same model. SentencePiece holds all sentences in memory, so it
        receives at most `MOST_SENTENCES` evenly spaced sentences. The special pieces and all characters count towards
        `vocabulary_size`. If `vocabulary_size` is too small, raise `InputError`.
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
                # SentencePiece silently drops sentences with more bytes than this.
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
        """Return sentences (...) for int ids (..., T). Space marks and special tokens except `<unk>` are removed."""
        pieces = tf.strings.regex_replace(super().decode(ids), " ", "")
        return tf.strings.strip(tf.strings.regex_replace(pieces, f"{SPACE_MARK}+", " "))


class WordEncoder(PieceEncoder):
    """Convert between strings of space-separated words and ids."""

    def __init__(self, vocabulary, lowercase=True):
        super().__init__(PieceTokenizer(lowercase), vocabulary)

    @classmethod
    def fit(cls, sentences, vocabulary_size, lowercase=True):
        """Fit a vocabulary of up to `vocabulary_size` ids: the most frequent words of the *training* sentences."""
        return cls(Vocabulary.fit(PieceTokenizer(lowercase).count(sentences), vocabulary_size), lowercase)
