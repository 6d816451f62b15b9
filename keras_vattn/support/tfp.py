"""The one place that imports TensorFlow Probability, so that it stays easy to replace."""

from tensorflow_probability.python.distributions import (
    Categorical,
    Distribution,
    Gamma,
    Independent,
    LogNormal,
    Normal,
    OneHotCategorical,
    RegisterKL,
    RelaxedOneHotCategorical,
    VectorDeterministic,
    Weibull,
)
from tensorflow_probability.python.internal.reparameterization import FULLY_REPARAMETERIZED
from tensorflow_probability.python.internal.samplers import split_seed

__all__ = [
    "FULLY_REPARAMETERIZED",
    "Categorical",
    "Distribution",
    "Gamma",
    "Independent",
    "LogNormal",
    "Normal",
    "OneHotCategorical",
    "RegisterKL",
    "RelaxedOneHotCategorical",
    "VectorDeterministic",
    "Weibull",
    "split_seed",
]
