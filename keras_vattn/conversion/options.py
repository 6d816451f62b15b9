"""Handle the options of `to_bayesian`: select attention layers, and choose the seed, name and prior of each."""

import copy
import itertools
import numbers
import re

import keras

from keras_vattn import alignments
from keras_vattn.alignments import Prior, VariationalAlignment
from keras_vattn.alignments.names import get_prior
from keras_vattn.conversion.attention_kinds import mixin_of
from keras_vattn.conversion.swapped_softmax import key_projection
from keras_vattn.layers.stochastic_layer import StochasticLayer
from keras_vattn.support.sublayers import path_of, serialize_sublayer


def select(attentions, layers):
    """Return the layers of the list `attentions` that the option `layers` of `to_bayesian` selects."""
    if layers is None:
        return attentions
    if callable(layers):
        return [x for x in attentions if layers(x)]
    if isinstance(layers, str):
        try:
            return [x for x in attentions if re.search(layers, path_of(x))]
        except re.error as error:
            raise ValueError(f"`layers` is not a regular expression: {error}. Received: layers={layers!r}") from error
    if not attentions:
        return []
    if isinstance(layers, numbers.Real) and 0.0 < layers < 1.0:
        layers = max(1, round(layers * len(attentions)))
    is_number = isinstance(layers, numbers.Integral) and not isinstance(layers, bool)
    if not is_number or not 0 < layers <= len(attentions):
        raise ValueError(
            f"`layers` must be None, an integer from 1 to {len(attentions)} (the number of attention layers), a "
            f"fraction below 1, a regular expression or a function of a layer. Received: layers={layers!r}"
        )
    return attentions[-layers:]


def seeds_and_names(attentions, selected, seed):
    """Return a list with the seed and log name of each attention layer, and `None` for layers not selected."""
    names = [x.name for x, is_selected in zip(attentions, selected, strict=True) if is_selected]
    seeds = itertools.count(seed or 0)
    return [
        {
            "seed": None if seed is None else next(seeds),
            "name": x.name if names.count(x.name) == 1 and path == path_of(x) else path.replace("/", "_"),
        }
        if is_selected
        else None
        for (x, path), is_selected in zip(attentions.items(), selected, strict=True)
    ]


def serialized_prior(prior, alignment):
    """Return the config of a prior. If `prior` is a name, the config has no dtype: `prior_for` adds it."""
    if prior is None:
        return None
    is_name = not isinstance(prior, (Prior, dict))
    config = serialize_sublayer(get_prior(prior, alignments.get(alignment), name="prior"))
    if is_name:
        # The number in Keras's default name would differ between processes.
        config["config"] |= {"name": "prior"}
        config["config"].pop("dtype")
    return config


def prior_for(conversion, layer):
    if conversion["prior"] is None:
        return None
    config = copy.deepcopy(conversion["prior"])
    config["config"].setdefault("dtype", keras.saving.serialize_keras_object(layer.dtype_policy))
    prior = keras.saving.deserialize_keras_object(config)
    if conversion["per_head_prior"] and prior.reads_keys and config["config"].get("num_heads", 0) is None:
        config["config"]["num_heads"] = getattr(layer, "num_heads", None)
        prior = keras.saving.deserialize_keras_object(config)
    return prior


def check_options(conversion, seed, attentions):
    """Raise ValueError if the options are invalid, or if an attention layer does not support them."""
    alignment = keras.saving.deserialize_keras_object(conversion["alignment"])
    if not alignment.is_stochastic:
        raise ValueError(
            'Bayesian attention samples its weights: use a stochastic alignment, for instance "weibull". '
            f"Received: alignment={type(alignment).__name__}"
        )
    names = ("kl_weight", "kl_annealing", "kl_reduction")
    StochasticLayer(**{name: conversion[name] for name in names}, seed=seed)
    for layer, path in attentions.items():
        num_heads, prior = getattr(layer, "num_heads", None), prior_for(conversion, layer)
        if mixin_of(type(layer)) is None:
            if prior is not None and prior.reads_keys:
                key_projection(layer)
            if conversion["per_head_prior"]:
                raise ValueError(f"A softmax does not support a prior per head. Received: per_head_prior=True, {path}")
            if conversion["query_chunk_size"] not in (None, "auto"):
                size = conversion["query_chunk_size"]
                raise ValueError(f"A softmax does not support query chunks. Received: query_chunk_size={size}, {path}")
        elif getattr(layer, "attention_axes", None) not in (None, (1,)) and conversion["query_chunk_size"]:
            axes, size = layer.attention_axes, conversion["query_chunk_size"]
            raise ValueError(
                "Query chunks need one attention axis. "
                f"Received: query_chunk_size={size}, {path} with attention_axes={axes}"
            )
        per_head = conversion["per_head_prior"] and num_heads is not None
        VariationalAlignment(alignment, prior, num_heads=num_heads, per_head_prior=per_head)
