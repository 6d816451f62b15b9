"""Find the layers of a model that have dropout, and apply dropout at inference if it is requested.

`keras_vattn.Sampler` requests dropout. Layers of this library read the request in their method `draw_seeds`. Keras has
no public way to set the argument `training` of an inner layer, so `follow_requests` permanently replaces the `call` of
a Keras layer. During a request for the layer, the new `call` passes the requested `training` to the original `call`.
"""

import functools
import inspect
import numbers

import keras

from keras_vattn.draws.request import training_requested

RATE_NAMES = ("rate", "dropout", "recurrent_dropout", "feature_dropout", "dropout_rate")


def has_dropout(layer):
    """Return whether a layer has dropout. The check includes the `cell` of a layer and the `parts()` of a decoder."""
    owners = [layer, getattr(layer, "cell", None)]
    # With query chunks, an attention layer generates dropout masks itself, instead of calling a dropout layer.
    has_chunks = getattr(layer, "query_chunk_size", None) is not None
    owners = [x for x in owners if isinstance(x, keras.Layer) and (_has_generator(x) or has_chunks)]
    if hasattr(layer, "draw_noise") and hasattr(layer, "parts"):
        owners += layer.parts()
    rates = [getattr(owner, name, None) for owner in owners for name in RATE_NAMES]
    return any(isinstance(rate, numbers.Real) and rate > 0 for rate in rates)


def has_unknown_rate(layer):
    """Return whether a layer may have a dropout rate in an attribute that `RATE_NAMES` does not list."""
    # The seed generator of a stochastic layer (`noise_seed`) or a decoder (`draw_noise`) does not imply dropout.
    has_known_attribute = any(hasattr(layer, name) for name in ("noise_seed", "draw_noise", *RATE_NAMES))
    return _has_generator(layer) and not has_known_attribute


def _has_generator(layer):
    values = [y for x in vars(layer).values() for y in (x if isinstance(x, (list, tuple)) else [x])]
    return any(isinstance(x, keras.random.SeedGenerator) for x in values)


def follow_requests(layer):
    """Let sampling requests set the argument `training` of `layer.call`, unless the layer reads requests itself."""
    signature = inspect.signature(layer.call)
    reads_requests = getattr(layer, "reads_dropout_requests", False) or hasattr(layer.call, "follows_requests")
    if reads_requests or "training" not in signature.parameters:
        return
    instance_call = vars(layer).get("call")

    def call(*args, **kwargs):
        # Look up the class of the layer at each call, because `to_bayesian` replaces this class.
        original = instance_call or functools.partial(type(layer).call, layer)
        training = training_requested(layer)
        if training is None:
            return original(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.arguments["training"] = training
        return original(*bound.args, **bound.kwargs)

    call.__signature__, call.follows_requests = signature, True
    layer.call = call
