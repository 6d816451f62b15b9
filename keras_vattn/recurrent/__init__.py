"""Recurrent decoders with attention or latent variables, and parts to build your own decoder from."""

from keras_vattn.recurrent.attention_decoder import AttentionDecoder
from keras_vattn.recurrent.cells import CELLS, GRUCell, LSTMCell, MaxOutLSTMCell, RecurrentCell
from keras_vattn.recurrent.feeding import ExpectedFeeding, Feeding, NoFeeding, SampledFeeding
from keras_vattn.recurrent.parts import AttentionPart, Carry, CellsPart, LatentPart, Part
from keras_vattn.recurrent.recurrent_decoder import RecurrentDecoder
from keras_vattn.recurrent.stochastic_decoder import StochasticDecoder
from keras_vattn.support.products import product

__all__ = [
    "CELLS",
    "AttentionDecoder",
    "AttentionPart",
    "Carry",
    "CellsPart",
    "ExpectedFeeding",
    "Feeding",
    "GRUCell",
    "LSTMCell",
    "LatentPart",
    "MaxOutLSTMCell",
    "NoFeeding",
    "Part",
    "RecurrentCell",
    "RecurrentDecoder",
    "SampledFeeding",
    "StochasticDecoder",
    "product",
]
