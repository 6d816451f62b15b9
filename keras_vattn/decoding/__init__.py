"""Greedy decoding, sampling and beam search in a TensorFlow graph, for any step function without side effects."""

from keras_vattn.decoding.beam_search import beam_search
from keras_vattn.decoding.decode import decode, greedy, sample
from keras_vattn.decoding.samplers import GreedySampler, RandomSampler

__all__ = ["GreedySampler", "RandomSampler", "beam_search", "decode", "greedy", "sample"]
