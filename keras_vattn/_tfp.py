"""The one place that imports TensorFlow Probability, so that it stays easy to replace."""

from tensorflow_probability.python.distributions import Independent, Normal, VectorDeterministic, kl_divergence

__all__ = ["Independent", "Normal", "VectorDeterministic", "kl_divergence"]
