"""Dropout at inference: which layers drop, and how they are told.

A layer of this library asks `drops` in its call. A layer of Keras has only its argument `training`, and no public way
leads to the argument of a layer inside another layer. Hence `follow_requests` gives such a layer, once and for good, a
`call` that asks for the `training` requested in this thread; without a request it is the `call` of the class.
"""

import functools
import inspect
import numbers

import keras

from keras_vattn.draws.request import training_requested

RATES = ("rate", "dropout", "recurrent_dropout", "feature_dropout", "dropout_rate")


def has_dropout(layer):
    """Return whether the layer itself, the cell that it runs or a part of a recurrent decoder drops in training."""
    owners = [layer, getattr(layer, "cell", None)]
    # In parts of the queries an attention takes the place of the dropout inside of it.
    in_parts = getattr(layer, "query_chunk_size", None) is not None
    owners = [x for x in owners if isinstance(x, keras.Layer) and (_has_generator(x) or in_parts)]
    if hasattr(layer, "draw_noise") and hasattr(layer, "parts"):
        owners += layer.parts()
    rates = [getattr(owner, name, None) for owner in owners for name in RATES]
    return any(isinstance(rate, numbers.Real) and rate > 0 for rate in rates)


def has_unknown_rate(layer):
    """Return whether a layer may have a dropout whose rate has another name than `RATES`."""
    # Stochastic layers and recurrent decoders have a seed generator for their draws.
    has_known_attribute = any(hasattr(layer, name) for name in ("noise_seed", "draw_noise", *RATES))
    return _has_generator(layer) and not has_known_attribute


def _has_generator(layer):
    return any(isinstance(x, keras.random.SeedGenerator) for x in vars(layer).values())


def follow_requests(layer):
    """Have the calls of a layer take the requested `training`, if they have such an argument."""
    call = type(layer).call
    asks_itself = getattr(layer, "asks_for_dropout", False) or "training" not in inspect.signature(call).parameters
    if asks_itself or "call" in vars(layer):
        return

    def following(*args, **kwargs):
        training = training_requested(layer)
        # The class at the time of the call: `to_bayesian` changes it.
        return type(layer).call(layer, *args, **(kwargs if training is None else {**kwargs, "training": training}))

    following.__signature__ = inspect.signature(functools.partial(call, layer))
    layer.call = following


def with_masks(noise, in_training):
    """Return a dictionary of noise, nested or not, with the masks of dropout of another one."""
    together = dict(noise)
    for name, entry in in_training.items():
        if isinstance(entry, dict):
            inner = with_masks(noise.get(name, {}), entry)
            if inner or name in noise:
                together[name] = inner
        elif name.endswith("dropout"):
            together[name] = entry
    return together
