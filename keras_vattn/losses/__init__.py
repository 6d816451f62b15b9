from keras_vattn.losses.sequence_crossentropy import SequenceCrossentropy, sequence_log_likelihood

__all__ = ["SequenceCrossentropy", "sequence_log_likelihood"]
