"""Which layers are attentions, and which of them `to_bayesian` converts."""

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


def is_understood(layer_class):
    """Return whether `to_bayesian` converts layers of a class."""
    return mixin_of(layer_class) is not None


def attentions_in(layer):
    """Return the attentions that `to_bayesian` converts in a layer or model, with their names in the log, a dictionary:
    attentions whose class it understands, and others that call a softmax."""
    found = {}
    for x in keras_private.flatten_layers(layer):
        if is_understood(type(x)):
            found[x] = path_of(x)
        elif calls_softmax(x):
            # A softmax is built before it has a place in the model, and may have a name that Keras has numbered.
            found[x] = f"{path_of(x)}/softmax"
    return found


def all_attentions(model):
    """Return the attentions of a model, understood or not, in its order."""
    inside = keras_private.flatten_layers(model)
    return [x for x in inside if is_understood(type(x)) or calls_softmax(x) or is_unknown(x)]


def calls_softmax(layer):
    """Return whether an attention whose class is not understood holds a softmax or calls Keras's."""
    if isinstance(layer, (StochasticLayer, keras.Model)) or is_understood(type(layer)) or not _is_attention(layer):
        return False
    has_softmax = softmax_of(layer) is not None or bool(redirected_functions(type(layer)))
    return has_softmax and not _holds_attention(layer)


def mixin_of(layer_class):
    """Return the mixin that converts the layers of a class, `None` for a class that is left alone."""
    if issubclass(layer_class, StochasticLayer):
        return None
    if issubclass(layer_class, keras.layers.MultiHeadAttention):
        return MultiHeadMixin if keras_private.computes_weights_as_keras(layer_class) else None
    if issubclass(layer_class, keras.layers.Attention):
        return KerasAttentionMixin if keras_private.changes_scores_alone(layer_class) else None
    return None


def _is_attention(layer):
    """Return whether a layer's class is an attention of Keras, or calls itself one; a layer of masks does not."""
    name = type(layer).__name__
    if isinstance(layer, (keras.layers.MultiHeadAttention, keras.layers.Attention)):
        return True
    return bool(re.search("attention", name, re.IGNORECASE)) and not re.search("mask|norm|dropout", name, re.IGNORECASE)


def is_unknown(layer):
    """Return whether a layer attends, is not understood, and is no wrapper of an attention that is checked itself."""
    if is_understood(type(layer)) or isinstance(layer, (AlignmentLayer, keras.Model)) or not _is_attention(layer):
        return False
    return not calls_softmax(layer) and not _holds_attention(layer)


def _holds_attention(layer):
    inside = [x for x in keras_private.flatten_layers(layer) if x is not layer and type(x) is not keras.layers.Softmax]
    return any(isinstance(x, AlignmentLayer) or is_understood(type(x)) or _is_attention(x) for x in inside)
