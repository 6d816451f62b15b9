"""The original of a model from `to_bayesian`, with the weights that the model has now."""

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
    """Return a new model with the attentions of a model before `to_bayesian`, and its present weights.

    Args:
        model: A model from `to_bayesian`, trained or not, or loaded from a file.

    Returns:
        A model of the original class, not compiled. The weights of the priors are gone, and LoRA is merged into the
        weights, as in a `.keras` file. It predicts what `model` predicts.

    Raises:
        ValueError: If nothing in the model was converted, or the model is quantised.

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
        raise ValueError(
            f"`to_deterministic` undoes `to_bayesian`, which this model does not come from. Received: model={model}"
        )
    refuse_changed_layers(model, lora=False)
    new = rebuild(map_config(_original, serialized(model)), model)
    copy_weights(original_weights(model), new.weights)
    copy_state(model, new, _added_layers(model))
    return new


def original_weights(model):
    """Return the weights of a model from `to_bayesian` that the original has too, in its order: all but the weights of
    priors and of LoRA."""
    added = {id(weight) for layer in _added_layers(model) for weight in layer.weights}
    for layer in keras_private.flatten_layers(model):
        if getattr(layer, "lora_enabled", False):
            added |= {id(weight) for weight in layer.weights if weight.name.startswith("lora_")}
    return [weight for weight in model.weights if id(weight) not in added]


def _original(entry):
    """Return the config of the original of a converted layer, any other dictionary of a config unchanged."""
    if entry.get("registered_name") != REGISTERED_NAME:
        return entry
    # In the config of a functional model, a layer's name and inputs stand beside its config.
    return entry["config"]["original"] | {key: entry[key] for key in ("name", "inbound_nodes") if key in entry}


def _added_layers(model):
    """Return the layers that the conversion has added: priors, and the softmaxes of attentions that had none."""
    priors = [x.alignment_prior for x in converted_drawing_layers(model) if x.alignment_prior is not None]
    return [*priors, *(vars(x)[SOFTMAX_NAME] for x in keras_private.flatten_layers(model) if SOFTMAX_NAME in vars(x))]
