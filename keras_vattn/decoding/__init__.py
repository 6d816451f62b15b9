"""Decoding in graph, on any pure step function."""

from keras_vattn.decoding.decode import decode, greedy, sample
from keras_vattn.decoding.samplers import GreedySampler, RandomSampler

__all__ = ["GreedySampler", "RandomSampler", "decode", "greedy", "sample"]
