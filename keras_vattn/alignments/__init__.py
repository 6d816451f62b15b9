"""Alignments: logits -> a distribution over source positions."""

from keras_vattn.alignments.alignment import Alignment
from keras_vattn.alignments.dense_keys import DenseKeys
from keras_vattn.alignments.softmax import Softmax
from keras_vattn.identifiers import resolve

ALIGNMENTS = {"softmax": Softmax}


def get(identifier):
    """Return the `Alignment` that a name, class, config dictionary or instance stands for."""
    return resolve(identifier, ALIGNMENTS, Alignment, "alignment")


__all__ = ["ALIGNMENTS", "Alignment", "DenseKeys", "Softmax", "get"]
