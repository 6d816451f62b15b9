"""Encode texts as token ids for a pretrained transformer, and add special tokens such as [CLS]."""

import pathlib
import re
import tempfile

import keras
import numpy as np
import tensorflow as tf
import tensorflow_text

from applications.common.errors import InputError
from applications.common.records import read_record
from applications.common.runs import replacing, write_json
from applications.common.serving import Untracked

_CONFIG = "tokenizer.json"
_CHUNK = 2000
_TEXTS = [tf.TensorSpec([None], tf.string)]
# BERT splits a text into words and punctuation marks, and then into pieces.
_WORD = re.compile(r"\w+|[^\w\s]")


class TextEncoder(tf.Module):
    """Encodes a text as [CLS] text [SEP], and a pair as [CLS] text [SEP] second text [SEP].

    Args:
        tokenizer: A KerasHub tokenizer with `cls_token_id`, `sep_token_id` and `pad_token_id`.
        max_length: Maximum number of tokens. In a pair, the longer text is truncated first.
    """

    def __init__(self, tokenizer, max_length):
        super().__init__(name="text_encoder")
        self._tokenizer = Untracked(tokenizer)
        # Only ALBERT has a SentencePiece model.
        self._sentencepiece_model = getattr(tokenizer, "proto", None)
        self.max_length = max_length

    @property
    def tokenizer(self):
        return self._tokenizer.value

    def _sentencepiece(self):
        # Setting TensorFlow's seed discards the model that KerasHub loaded, so load it again.
        return tensorflow_text.SentencepieceTokenizer(self._sentencepiece_model, out_type=tf.int32)

    @tf.function(input_signature=_TEXTS, autograph=False)
    def pieces(self, texts):
        """Return the word-piece ids of each text as a ragged int32 tensor (B, None)."""
        if self._sentencepiece_model is not None:
            with tf.device("CPU:0"):
                return self._sentencepiece().tokenize(texts)
        ids = self.tokenizer(texts)
        # In eager mode, KerasHub returns lists.
        is_list = isinstance(ids, list)
        return tf.ragged.constant(ids, tf.int32, ragged_rank=1, row_splits_dtype="int64") if is_list else ids

    def located(self, text):
        """Return the piece ids of a text, and the character offsets (start, end) of each piece's word."""
        words = [match.span() for match in _WORD.finditer(text)]
        if not words:
            return [], []
        if self._sentencepiece_model is None:
            pieces = self.pieces([text[start:end] for start, end in words])
            spans = np.repeat(words, pieces.row_lengths(), axis=0).tolist()
            return pieces.flat_values.numpy().tolist(), list(map(tuple, spans))
        # Pass the whole text: SentencePiece does not split a text into words first.
        ids, *ends = (values.numpy()[0] for values in self._pieces_with_offsets([text]))
        # SentencePiece counts bytes, `spans` counts characters.
        offsets = np.cumsum([0, *(len(character.encode()) for character in text)])
        word_starts, word_ends = np.array(words).T
        spans = []
        for start, end in np.searchsorted(offsets, np.stack(ends, axis=1)).tolist():
            inside = np.flatnonzero((word_starts < end) & (word_ends > start))
            spans.append((int(word_starts[inside[0]]), int(word_ends[inside[-1]])) if inside.size else (end, end))
        return ids.tolist(), spans

    @tf.function(input_signature=_TEXTS, autograph=False)
    def _pieces_with_offsets(self, texts):
        with tf.device("CPU:0"):
            return self._sentencepiece().tokenize_with_offsets(texts)

    def encode(self, *texts):
        """Encode single texts or pairs of texts, with special tokens.

        Return ragged ids (B, None), the number of tokens before the second text (B,), and the number of truncated
        tokens (B,).
        """
        segments = [self.pieces(column) for column in texts]
        num_pieces = sum(segment.row_lengths() for segment in segments)
        segments = tensorflow_text.RoundRobinTrimmer(self.max_length - 1 - len(segments)).trim(segments)
        ids, _ = tensorflow_text.combine_segments(segments, self.tokenizer.cls_token_id, self.tokenizer.sep_token_id)
        cut = num_pieces - sum(segment.row_lengths() for segment in segments)
        return ids, tf.cast(segments[0].row_lengths() + 2, tf.int32), cut

    def encode_all(self, *texts):
        """Encode long lists of texts in chunks. Return the same values as `encode`."""
        with tf.device("CPU:0"):
            batches = [
                self.encode(*(tf.constant(column[start : start + _CHUNK]) for column in texts))
                for start in range(0, len(texts[0]), _CHUNK)
            ]
            return [tf.concat(values, axis=0) for values in zip(*batches)]

    def save(self, path):
        """Write the tokenizer to a folder, for `load`."""
        path.mkdir(parents=True, exist_ok=True)
        write_json(path / _CONFIG, keras.saving.serialize_keras_object(self.tokenizer))
        with tempfile.TemporaryDirectory(dir=path) as assets:
            self.tokenizer.save_assets(assets)
            for asset in pathlib.Path(assets).iterdir():
                with replacing(path / asset.name) as temporary:
                    asset.rename(temporary)

    @classmethod
    def load(cls, path, max_length):
        import keras_hub  # noqa: F401 - registers its tokenizers

        config = dict(read_record(path / _CONFIG))
        try:
            tokenizer = keras.saving.deserialize_keras_object(config)
            tokenizer.load_assets(str(path))
        except (*(AttributeError, KeyError, OSError, RuntimeError, TypeError, ValueError), tf.errors.OpError) as error:
            raise InputError(f"{path}: the tokenizer cannot be read: {error}") from error
        return cls(tokenizer, max_length)
