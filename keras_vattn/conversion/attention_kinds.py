"""Find the attention layers of a model, and decide how `to_bayesian` converts each of them."""

import re

import keras

from keras_vattn.conversion.redirected_functions import redirected_functions
from keras_vattn.conversion.swapped_softmax import softmax_of
from keras_vattn.layers.alignment_layer import AlignmentLayer
from keras_vattn.layers.keras_attention_mixin import KerasAttentionMixin
from keras_vattn.layers.multi_head_mixin import MultiHeadMixin
from keras_vattn.layers.stochastic_layer import StochasticLayer
from keras_vattn.support import keras_private
from keras_vattn.support.sublayers import path_of


def attentions_in(layer):
    """Return a dictionary that maps each convertible attention layer of a model to the name of its KL in the log.

    The name is the path of the attention layer, plus "/softmax" if `to_bayesian` converts the softmax of this layer.
    """
    suffixes = {"class": "", "softmax": "/softmax"}
    inside = {x: attention_kind(x) for x in keras_private.flatten_layers(layer)}
    return {x: path_of(x) + suffixes[kind] for x, kind in inside.items() if kind in suffixes}


def all_attentions(model):
    """Return all attention layers of a model, including layers that cannot be converted."""
    return [x for x in keras_private.flatten_layers(model) if attention_kind(x)]


def attention_kind(layer):
    """Return how `to_bayesian` converts a layer.

    Returns:
        `"class"` if `to_bayesian` adds a mixin to the class of the attention layer. `"softmax"` if `to_bayesian`
        replaces the softmax. `"unknown"` for attention that cannot be converted. `None` for other layers, including
        wrappers of an attention layer.
    """
    if mixin_of(type(layer)):
        return "class"
    if isinstance(layer, (AlignmentLayer, keras.Model)) or not _is_attention(layer) or _holds_attention(layer):
        return None
    has_softmax = softmax_of(layer) is not None or redirected_functions(type(layer))
    return "softmax" if has_softmax and not isinstance(layer, StochasticLayer) else "unknown"


def mixin_of(layer_class):
    """Return the mixin that converts the layers of a class, or `None` if there is no such mixin."""
    if issubclass(layer_class, StochasticLayer):
        return None
    if issubclass(layer_class, keras.layers.MultiHeadAttention):
        return MultiHeadMixin if keras_private.computes_weights_as_keras(layer_class) else None
    if issubclass(layer_class, keras.layers.Attention):
        return KerasAttentionMixin if keras_private.changes_scores_alone(layer_class) else None
    return None


def _is_attention(layer):
    name = type(layer).__name__
    if isinstance(layer, (keras.layers.MultiHeadAttention, keras.layers.Attention)):
        return True
    return bool(re.search("attention", name, re.IGNORECASE)) and not re.search("mask|norm|dropout", name, re.IGNORECASE)


def _holds_attention(layer):
    inside = [x for x in keras_private.flatten_layers(layer) if x is not layer and type(x) is not keras.layers.Softmax]
    return any(isinstance(x, AlignmentLayer) or mixin_of(type(x)) or _is_attention(x) for x in inside)
