"""A model whose attentions draw their weights, from one whose attentions do not, and back."""

from keras_vattn.conversion.convert import original_weights, to_bayesian, to_deterministic
from keras_vattn.conversion.understood import is_understood

__all__ = ["is_understood", "original_weights", "to_bayesian", "to_deterministic"]
