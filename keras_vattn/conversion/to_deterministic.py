"""Convert a model from `to_bayesian` back to the original attention layers, with the current weights."""

from keras_vattn.conversion.convert import REGISTERED_NAME, Converted, converted_drawing_layers
from keras_vattn.conversion.copies import (
    copy_state,
    copy_weights,
    map_config,
    rebuild,
    refuse_changed_layers,
    serialized,
)
from keras_vattn.conversion.redirected_functions import SOFTMAX_NAME
from keras_vattn.support import keras_private


def to_deterministic(model):
    """Undo `to_bayesian`: return a new model with the original attention layers and the current weights.

    Args:
        model: A model from `to_bayesian`, trained or not, or loaded from a file.

    Returns:
        A model of the original class that makes the same predictions as `model`. The new model is not compiled,
        and has no priors. LoRA updates are merged into the weights, as when Keras saves a model.

    Raises:
        ValueError: If no layer of the model was converted, or the model is quantized.

    Example:

    >>> x = keras.Input((5, 8))
    >>> model = keras.Model(x, keras.layers.MultiHeadAttention(2, 4)(x, x))
    >>> restored = keras_vattn.to_deterministic(keras_vattn.to_bayesian(model))
    >>> [type(layer).__name__ for layer in restored.layers]
    ['InputLayer', 'MultiHeadAttention']
    >>> keras_vattn.stochastic_layers(restored)
    []
    """
    if not any(isinstance(layer, Converted) for layer in keras_private.flatten_layers(model)):
        raise ValueError(f"`to_deterministic` undoes `to_bayesian`: pass a converted model. Received: model={model}")
    refuse_changed_layers(model, lora=False)
    new = rebuild(map_config(_original, serialized(model)), model)
    copy_weights(original_weights(model), new.weights)
    copy_state(model, new, _added_layers(model))
    return new


def original_weights(model):
    """Return the weights of a converted model that the original also has: all except weights of priors and LoRA."""
    added = {id(weight) for layer in _added_layers(model) for weight in layer.weights}
    for layer in keras_private.flatten_layers(model):
        if getattr(layer, "lora_enabled", False):
            added |= {id(weight) for weight in layer.weights if weight.name.startswith("lora_")}
    return [weight for weight in model.weights if id(weight) not in added]


def _original(entry):
    if entry.get("registered_name") != REGISTERED_NAME:
        return entry
    # A functional model stores these two entries outside of the config of the layer.
    return entry["config"]["original"] | {key: entry[key] for key in ("name", "inbound_nodes") if key in entry}


def _added_layers(model):
    """Return the layers that the conversion added."""
    priors = [x.alignment_prior for x in converted_drawing_layers(model) if x.alignment_prior is not None]
    return [*priors, *(vars(x)[SOFTMAX_NAME] for x in keras_private.flatten_layers(model) if SOFTMAX_NAME in vars(x))]
