"""Convert the attention layers of a model to layers that sample their attention weights, and convert them back."""

from keras_vattn.conversion.convert import to_bayesian
from keras_vattn.conversion.to_deterministic import original_weights, to_deterministic

__all__ = ["original_weights", "to_bayesian", "to_deterministic"]
