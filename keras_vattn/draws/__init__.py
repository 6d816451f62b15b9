"""Draws of a model at inference: all its layers together, and the posterior predictive distribution."""

from keras_vattn.draws.posterior_draws import posterior_draws
from keras_vattn.draws.posterior_predictive import posterior_predictive

__all__ = ["posterior_draws", "posterior_predictive"]
