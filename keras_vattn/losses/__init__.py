from keras_vattn.losses.negative_bound import NegativeBound
from keras_vattn.losses.sequence_crossentropy import SequenceCrossentropy, sequence_log_likelihood

__all__ = ["NegativeBound", "SequenceCrossentropy", "sequence_log_likelihood"]
