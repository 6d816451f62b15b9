"""The recurrent decoder: its cells, its pure step, and attention as a part of it."""

from keras_vattn.recurrent.attention_decoder import AttentionDecoder

__all__ = ["AttentionDecoder"]
