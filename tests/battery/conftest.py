"""Provides a fixture for training calls without noise."""

import pytest
import tensorflow as tf

import keras_vattn


def subclasses(base):
    return [each for x in base.__subclasses__() for each in (x, *subclasses(x))]


@pytest.fixture
def no_noise(monkeypatch):
    """Replace all noise: normals are 0, uniforms 0.75, samples equal their mean, and dropout keeps every entry."""
    for alignment in subclasses(keras_vattn.Alignment):
        monkeypatch.setattr(alignment, "noise", lambda self, shape, seed: None)
    monkeypatch.setattr(keras_vattn.random, "normal", lambda shape, seed: tf.zeros(shape))
    monkeypatch.setattr(keras_vattn.random, "uniform", lambda shape, seed: tf.fill(shape, 0.75))
    monkeypatch.setattr(keras_vattn.random, "dropout_mask", lambda shape, rate, seed: tf.fill(shape, True))
