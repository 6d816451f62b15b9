"""Sample from the posterior of a model at inference, or from its posterior predictive distribution."""

from keras_vattn.draws.export_draws import export_draws
from keras_vattn.draws.posterior_draws import posterior_draws
from keras_vattn.draws.posterior_predictive import posterior_predictive
from keras_vattn.draws.sampler import Sampler
from keras_vattn.draws.stochastic_layers import stochastic_layers
from keras_vattn.draws.summary import summary

__all__ = [
    "Sampler",
    "export_draws",
    "posterior_draws",
    "posterior_predictive",
    "stochastic_layers",
    "summary",
]
