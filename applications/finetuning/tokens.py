"""Texts as a pretrained transformer reads them: the pieces of its vocabulary, between its marks."""

import pathlib
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
# Texts that are turned into tokens together.
_TOGETHER = 2000
_TEXTS = [tf.TensorSpec([None], tf.string)]


class TextEncoder(tf.Module):
    """Turns texts into token ids, [CLS] text [SEP], or [CLS] text [SEP] other text [SEP]; in a graph too.

    Args:
        tokenizer: A tokenizer of KerasHub, with `cls_token_id`, `sep_token_id` and `pad_token_id`.
        max_length: Tokens of an example; the longer text of a pair loses tokens first.
    """

    def __init__(self, tokenizer, max_length):
        super().__init__(name="text_encoder")
        self._tokenizer = Untracked(tokenizer)
        self.max_length = max_length

    @property
    def tokenizer(self):
        return self._tokenizer.value

    @property
    def _model(self):
        """The sentencepiece model of an ALBERT, bytes; `None` for a BERT."""
        return getattr(self.tokenizer, "proto", None)

    def _sentencepiece(self):
        # Each function loads it anew: KerasHub's own is lost when a program sets TensorFlow's seed.
        return tensorflow_text.SentencepieceTokenizer(self._model, out_type=tf.int32)

    @tf.function(input_signature=_TEXTS, autograph=False)
    def pieces(self, texts):
        """Return the ids of the pieces of texts, ragged (B, None) int32."""
        if self._model is not None:
            with tf.device("CPU:0"):
                return self._sentencepiece().tokenize(texts)
        ids = self.tokenizer(texts)
        if isinstance(ids, list):
            # KerasHub makes lists of them outside of a graph.
            return tf.ragged.constant(ids, dtype=tf.int32, ragged_rank=1, row_splits_dtype="int64")
        return ids if isinstance(ids, tf.RaggedTensor) else tf.RaggedTensor.from_tensor(ids)

    def located(self, text):
        """Return the ids of a text's pieces and the characters (start, end) of each, lists; `None` for a tokenizer that
        reads word by word."""
        if self._model is None:
            return None
        ids, starts, ends = (x.numpy()[0] for x in self._located([text]))
        # From places in bytes to places in characters.
        begins = np.cumsum([0, *(len(character.encode()) for character in text)])
        places = np.searchsorted(begins, np.stack([starts, ends], axis=1)).tolist()
        return ids.tolist(), list(map(tuple, places))

    @tf.function(input_signature=_TEXTS, autograph=False)
    def _located(self, texts):
        with tf.device("CPU:0"):
            return self._sentencepiece().tokenize_with_offsets(texts)

    def encode(self, *texts):
        """Return ragged ids (B, None) of texts, or of texts and the others of pairs, the number of tokens before the
        second text (B,), and how many were cut (B,)."""
        marks = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        segments = [self.pieces(column) for column in texts]
        room = self.max_length - 1 - len(segments)
        before = sum(segment.row_lengths() for segment in segments)
        segments = tensorflow_text.RoundRobinTrimmer(room).trim(segments)
        ids, _ = tensorflow_text.combine_segments(segments, *marks)
        cut = before - sum(segment.row_lengths() for segment in segments)
        return ids, tf.cast(segments[0].row_lengths() + 2, tf.int32), cut

    def encode_all(self, *texts):
        """Return the same of lists of any length."""
        with tf.device("CPU:0"):
            parts = [
                self.encode(*(tf.constant(column[start : start + _TOGETHER]) for column in texts))
                for start in range(0, len(texts[0]), _TOGETHER)
            ]
            return [tf.concat(values, axis=0) for values in zip(*parts)]

    def save(self, path):
        """Write what `load` reads into a folder."""
        path = pathlib.Path(path)
        path.mkdir(parents=True, exist_ok=True)
        write_json(path / _CONFIG, keras.saving.serialize_keras_object(self.tokenizer))
        with tempfile.TemporaryDirectory(dir=path) as assets:
            self.tokenizer.save_assets(assets)
            for asset in pathlib.Path(assets).iterdir():
                with replacing(path / asset.name) as temporary:
                    asset.rename(temporary)

    @classmethod
    def load(cls, path, max_length):
        import keras_hub  # noqa: F401 - it registers its tokenizers

        try:
            tokenizer = keras.saving.deserialize_keras_object(dict(read_record(path / _CONFIG)))
            tokenizer.load_assets(str(path))
        except InputError:
            raise
        except (*(AttributeError, KeyError, OSError, RuntimeError, TypeError, ValueError), tf.errors.OpError) as error:
            raise InputError(f"{path}: the tokenizer cannot be read: {error}") from error
        return cls(tokenizer, max_length)
