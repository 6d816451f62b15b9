"""The one place that imports TensorFlow Probability, so that it stays easy to replace."""

from tensorflow_probability.python.distributions import (
    Categorical,
    Distribution,
    Independent,
    Normal,
    OneHotCategorical,
    RegisterKL,
    VectorDeterministic,
    kl_divergence,
)
from tensorflow_probability.python.distributions.kullback_leibler import _registered_kl as registered_kl
from tensorflow_probability.python.internal.parameter_properties import ParameterProperties
from tensorflow_probability.python.internal.reparameterization import FULLY_REPARAMETERIZED
from tensorflow_probability.python.internal.samplers import sanitize_seed, split_seed

__all__ = [
    "FULLY_REPARAMETERIZED",
    "Categorical",
    "Distribution",
    "Independent",
    "Normal",
    "OneHotCategorical",
    "ParameterProperties",
    "RegisterKL",
    "VectorDeterministic",
    "kl_divergence",
    "registered_kl",
    "sanitize_seed",
    "split_seed",
]
