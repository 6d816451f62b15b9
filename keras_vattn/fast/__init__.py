"""Replacements for Keras's LSTM, Dropout and Adam that compute the same results faster on a CPU."""

from keras_vattn.fast.dropout import Dropout
from keras_vattn.fast.fused_adam import FusedAdam
from keras_vattn.fast.lstm import LSTM

__all__ = ["LSTM", "Dropout", "FusedAdam"]
