"""What the tests of draws in threads share."""

import concurrent.futures

import numpy as np
from predictive_cases import X, predict

from keras_vattn import posterior_draws
from keras_vattn.draws.posterior_draws import CompiledFunction
from keras_vattn.draws.request import current_requests
from keras_vattn.support.keras_private import flatten_layers

SECONDS = 300  # only a test that hangs waits for so long


def elsewhere(function, *arguments):
    """Run a function in a thread of its own, to the end."""
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        return threads.submit(function, *arguments).result(SECONDS)


def seeded(model, seed):
    with posterior_draws(model, seed):
        return predict(model)


def squares(model):
    """Return the mean square of the outputs, by `evaluate`."""
    return model.evaluate(X, np.zeros((*X.shape[:2], 2)), verbose=0, return_dict=True)["mse"]


def has_nothing_of_ours(model):
    functions = [getattr(layer, name, None) for layer in flatten_layers(model) for name in CompiledFunction.NAMES]
    return not current_requests() and not any(isinstance(x, CompiledFunction) for x in functions)
