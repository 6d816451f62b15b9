"""Keras's LSTM, Dropout and Adam, with the same weights and results but faster on a CPU."""

from keras_vattn.fast.dropout import Dropout
from keras_vattn.fast.fused_adam import FusedAdam
from keras_vattn.fast.lstm import LSTM

__all__ = ["LSTM", "Dropout", "FusedAdam"]
