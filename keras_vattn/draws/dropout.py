"""Find the layers of a model that have dropout, and apply dropout at inference if it is requested.

Layers of this library read a request in their method `draw_seeds`. For a Keras layer, `follow_requests` permanently
replaces the method `call`. During a request, the new `call` passes the requested `training` to the original `call`.
"""

import functools
import inspect
import numbers

import keras

from keras_vattn.draws.request import training_requested

RATE_NAMES = ("rate", "dropout", "recurrent_dropout", "feature_dropout", "dropout_rate")


def has_dropout(layer):
    """Return whether a layer, its `cell`, or a layer in the `parts()` of a decoder has a dropout rate above 0."""
    owners = [layer, getattr(layer, "cell", None)]
    # With query chunks, an attention layer generates dropout masks without a dropout sublayer.
    has_chunks = getattr(layer, "query_chunk_size", None) is not None
    owners = [x for x in owners if isinstance(x, keras.Layer) and (_has_generator(x) or has_chunks)]
    if hasattr(layer, "draw_noise") and hasattr(layer, "parts"):
        owners += layer.parts()
    rates = [getattr(owner, name, None) for owner in owners for name in RATE_NAMES]
    return any(isinstance(rate, numbers.Real) and rate > 0 for rate in rates)


def has_unknown_rate(layer):
    """Return whether a layer may have a dropout rate in an attribute that `RATE_NAMES` does not list."""
    # Stochastic layers (`noise_seed`) and decoders (`draw_noise`) have a seed generator even without dropout.
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
        # Read `type(layer)` at each call: `to_bayesian` may change the class of the layer later.
        original = instance_call or functools.partial(type(layer).call, layer)
        training = training_requested(layer)
        if training is None:
            return original(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.arguments["training"] = training
        return original(*bound.args, **bound.kwargs)

    call.__signature__, call.follows_requests = signature, True
    layer.call = call
