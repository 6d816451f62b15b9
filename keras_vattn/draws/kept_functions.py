"""Compiled functions that a model keeps until it changes."""

from keras_vattn.alignments.alignment import Alignment
from keras_vattn.draws.compiled_functions import NAMES
from keras_vattn.draws.marks import TURN, sees_marks
from keras_vattn.support import keras_private

# The functions of a model that are kept: of several shapes of input, for instance.
MOST = 8
_PLACE = "_kept_functions"
# What `fit`, `predict` and their like leave on a model: to count it would cost a trace.
_LEFT_BEHIND = {
    "history",
    "stop_evaluating",
    "stop_predicting",
    "stop_training",
    *NAMES,
    *(f"make_{name}" for name in NAMES),
}


def kept_function(model, options, make):
    """Return the function that `make()` returned for a model and these options, a new one if the model has changed.

    The model alone holds the function: a copy or a file of the model has none.

    Args:
        model: A `keras.Model` or layer.
        options: A hashable key of the function.
        make: A function without arguments.
    """
    with TURN.taken({}):  # Meanwhile no method of a layer is another than its own.
        functions, settings = vars(model).setdefault(_PLACE, {}), _settings(model)
        before, function = functions.pop(options, ((), None))
        if not _are_the_same(before, settings):
            function = make()
        functions[options] = settings, function
        if len(functions) > MOST:
            del functions[next(iter(functions))]
    return function


def _settings(model):
    """Return what a trace of a model reads of its layers and their parts, except the values of variables: public
    attributes, dtype policies and the marks of `posterior_draws`."""
    layers = keras_private.flatten_layers(model)
    owners = [*layers, *(x for layer in layers for x in _alignments(layer))]
    settings = [
        (x, name, value)
        for x in owners
        for name, value in list(vars(x).items())  # another thread may be at it
        if not name.startswith("_") and name not in _LEFT_BEHIND
    ]
    settings += [(layer, "dtype_policy", layer.dtype_policy) for layer in layers]
    return settings + [(layer, "draws", layer.draws) for layer in layers if sees_marks(layer)]


def _alignments(layer):
    held = (*vars(layer).values(), getattr(layer, "alignment", None))
    return [x for x in held if isinstance(x, Alignment)]


def _are_the_same(before, settings):
    return len(before) == len(settings) and all(
        x is y and name == other_name and (value is other or _is_equal(value, other))
        for (x, name, value), (y, other_name, other) in zip(before, settings, strict=True)
    )


def _is_equal(value, other):
    return type(value) is type(other) and isinstance(value, (bool, int, float, str)) and value == other
