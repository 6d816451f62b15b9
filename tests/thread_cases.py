"""What the tests of draws in threads share."""

import concurrent.futures

import numpy as np
from predictive_cases import X, predict

from keras_vattn import posterior_draws
from keras_vattn.draws import compiled_functions, marks
from keras_vattn.support.keras_private import flatten_layers, seed_generators

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
    names = {f"make_{name}" for name in compiled_functions.NAMES} | {"call", "draw_noise", "_setattr_hook"}
    assert not marks.TURN.marks
    for layer in flatten_layers(model):
        assert not names & set(vars(layer))
        assert all("next" not in vars(generator) for generator in seed_generators(layer))
        for name in compiled_functions.NAMES:
            assert not isinstance(getattr(layer, name, None), compiled_functions.FunctionByMarks)
    return True
