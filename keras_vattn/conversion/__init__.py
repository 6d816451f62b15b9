"""A model whose attentions draw their weights, made from a model whose attentions do not, and back."""

from keras_vattn.conversion.convert import to_bayesian
from keras_vattn.conversion.to_deterministic import original_weights, to_deterministic

__all__ = ["original_weights", "to_bayesian", "to_deterministic"]
