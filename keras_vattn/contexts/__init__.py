"""Contexts compute the attended vector from attention weights and values."""

from keras_vattn.contexts.context import Context
from keras_vattn.contexts.gaussian_context import GaussianContext
from keras_vattn.contexts.weighted_sum import WeightedSum
from keras_vattn.support.identifiers import resolve

CONTEXTS = {"weighted_sum": WeightedSum, "gaussian": GaussianContext}


def get(identifier, **kwargs):
    """Return a `Context` from a name, class, config dictionary or instance. `kwargs` are constructor arguments."""
    return resolve(identifier, CONTEXTS, Context, "context", **kwargs)


__all__ = ["CONTEXTS", "Context", "GaussianContext", "WeightedSum", "get"]
