"""Which layers are attentions, and what of them `to_bayesian` converts."""

import inspect
import re

import keras

from keras_vattn.layers.alignment_layer import AlignmentLayer
from keras_vattn.layers.keras_attention_mixin import KerasAttentionMixin
from keras_vattn.layers.multi_head_mixin import MultiHeadMixin
from keras_vattn.layers.stochastic_layer import StochasticLayer
from keras_vattn.support import keras_private


def is_understood(layer_class):
    """Return whether `to_bayesian` converts layers of a class."""
    return mixin_of(layer_class) is not None


def attentions_in(layer):
    """Return what `to_bayesian` converts in a layer or model, with the path of each, a dictionary: attentions whose
    class it understands, and the softmax that another attention holds."""
    if type(layer) is keras.layers.Softmax:
        return {layer: "softmax"}
    found = {}
    for x in keras_private.flatten_layers(layer):
        if is_understood(type(x)):
            found[x] = x.path
        # A softmax is built before it has a place in the model, and may have a name that Keras has numbered.
        found |= {softmax: f"{x.path}/softmax" for softmax in softmaxes_of(x)}
    return found


def softmaxes_of(layer):
    """Return the softmaxes over the last axis that an attention holds itself, and whose class is not understood."""
    if isinstance(layer, (StochasticLayer, keras.Model)) or is_understood(type(layer)) or not _is_attention(layer):
        return []
    if _holds_attention(layer):
        return []
    held = keras_private.read(layer, "_layers")
    return [x for x in held if type(x) is keras.layers.Softmax and x.axis in (-1, [-1], (-1,))]


def mixin_of(layer_class):
    """Return the mixin that converts the layers of a class, `None` for those that are left alone."""
    if issubclass(layer_class, StochasticLayer):
        return None
    for base, mixin, inherited, asked in _KINDS:
        if issubclass(layer_class, base):
            as_there = all(getattr(layer_class, name) is getattr(base, name) for name in inherited)
            return mixin if as_there and asked in inspect.unwrap(layer_class.call).__code__.co_names else None
    return None


# Base class, mixin, what a subclass must not override, and what its call must ask for: there the weights are computed.
_KINDS = (
    (keras.layers.MultiHeadAttention, MultiHeadMixin, ("_compute_attention",), "_compute_attention"),
    (keras.layers.Attention, KerasAttentionMixin, ("call", "_apply_scores", "_calculate_score_mask"), "_apply_scores"),
)


def _is_attention(layer):
    """Return whether a layer's class calls itself one that attends; a layer of masks does not."""
    name = type(layer).__name__
    return bool(re.search("attention", name, re.IGNORECASE)) and not re.search("mask|norm|dropout", name, re.IGNORECASE)


def is_unknown(layer):
    """Return whether a layer attends, is not understood, and is no box around attention that is looked at itself."""
    if is_understood(type(layer)) or isinstance(layer, (AlignmentLayer, keras.Model)) or not _is_attention(layer):
        return False
    return not softmaxes_of(layer) and not _holds_attention(layer)


def _holds_attention(layer):
    inside = [x for x in keras_private.flatten_layers(layer) if x is not layer and type(x) is not keras.layers.Softmax]
    return any(isinstance(x, AlignmentLayer) or is_understood(type(x)) or _is_attention(x) for x in inside)
