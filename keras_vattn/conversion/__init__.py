"""A model whose attentions draw their weights, from one whose attentions do not, and back."""

from keras_vattn.conversion.convert import original_weights, to_bayesian, to_deterministic

__all__ = ["original_weights", "to_bayesian", "to_deterministic"]
