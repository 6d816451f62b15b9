"""Distributions of attention weights, with parameters in log space. A row contains the weights of one query."""

from keras_vattn.distributions.categorical import Categorical, RelaxedCategorical
from keras_vattn.distributions.dirichlet import Dirichlet
from keras_vattn.distributions.gamma import Gamma
from keras_vattn.distributions.log_normal import LogisticNormal, LogNormal
from keras_vattn.distributions.normal import Normal
from keras_vattn.distributions.row_distribution import RowDistribution
from keras_vattn.distributions.weibull import NormalizedWeibull, Weibull

__all__ = [
    "Categorical",
    "Dirichlet",
    "Gamma",
    "LogNormal",
    "LogisticNormal",
    "Normal",
    "NormalizedWeibull",
    "RelaxedCategorical",
    "RowDistribution",
    "Weibull",
]
