"""Optimizers."""

from keras_vattn.optimizers.fused_adam import FusedAdam

__all__ = ["FusedAdam"]
