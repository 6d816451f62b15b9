"""Dropout at inference: which layers drop, and how they read the request to drop.

Layers of this library call `draw_seeds`. A layer of Keras has only its argument `training`, and Keras has no public way
to pass it to a layer inside another layer. So `follow_requests` replaces the `call` of such a layer once and for good.
The new `call` passes the `training` requested in its thread; without a request it is the `call` of the class.
"""

import functools
import inspect
import numbers

import keras

from keras_vattn.draws.request import training_requested

RATE_NAMES = ("rate", "dropout", "recurrent_dropout", "feature_dropout", "dropout_rate")


def has_dropout(layer):
    """Return whether the layer itself, the cell that it runs or a part of a recurrent decoder drops in training."""
    owners = [layer, getattr(layer, "cell", None)]
    # With query chunks an attention draws the masks itself, and its inner dropout layer does not run.
    has_chunks = getattr(layer, "query_chunk_size", None) is not None
    owners = [x for x in owners if isinstance(x, keras.Layer) and (_has_generator(x) or has_chunks)]
    if hasattr(layer, "draw_noise") and hasattr(layer, "parts"):
        owners += layer.parts()
    rates = [getattr(owner, name, None) for owner in owners for name in RATE_NAMES]
    return any(isinstance(rate, numbers.Real) and rate > 0 for rate in rates)


def has_unknown_rate(layer):
    """Return whether a layer may have a dropout whose rate has another name than `RATES`."""
    # Stochastic layers and recurrent decoders have a seed generator for their draws.
    has_known_attribute = any(hasattr(layer, name) for name in ("noise_seed", "draw_noise", *RATE_NAMES))
    return _has_generator(layer) and not has_known_attribute


def _has_generator(layer):
    values = [y for x in vars(layer).values() for y in (x if isinstance(x, (list, tuple)) else [x])]
    return any(isinstance(x, keras.random.SeedGenerator) for x in values)


def follow_requests(layer):
    """Have the calls of a layer take the requested `training`, if they have this argument and do not read requests."""
    signature = inspect.signature(layer.call)
    reads_requests = getattr(layer, "asks_for_dropout", False) or hasattr(layer.call, "follows_requests")
    if reads_requests or "training" not in signature.parameters:
        return
    instance_call = vars(layer).get("call")

    def call(*args, **kwargs):
        # The class at the time of the call: `to_bayesian` changes it.
        original = instance_call or functools.partial(type(layer).call, layer)
        training = training_requested(layer)
        if training is None:
            return original(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.arguments["training"] = training
        return original(*bound.args, **bound.kwargs)

    call.__signature__, call.follows_requests = signature, True
    layer.call = call
