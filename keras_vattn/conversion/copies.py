"""Copy a model: rebuild it from its config, and copy its weights and state."""

import tempfile

import keras
import numpy as np

from keras_vattn.support import keras_private

KNOWN_PACKAGES = ("keras", "keras_hub", "keras_vattn")


def serialized(layer, optional=False):
    """Return the serialized layer or model, without the arguments of `compile`.

    If a class has no working `get_config`, raise ValueError. With `optional=True`, return `None` instead.
    """
    try:
        config = keras.saving.serialize_keras_object(layer)
    except (NotImplementedError, AttributeError, TypeError) as error:
        if optional:
            return None
        raise ValueError(
            "Keras can neither rebuild nor save the model, because one of its classes has `__init__` arguments but no "
            "`get_config` that returns them. Add a `get_config`. If you cannot edit the class, call the whole backbone "
            f"as one layer of your model. Received: {type(getattr(error, 'obj', None) or layer).__name__}. {error}"
        ) from error
    llamas = [x for x in keras_private.flatten_layers(layer) if _is_llama(type(x))]
    tied = [x.name for x in llamas if x.token_embedding.tie_weights]

    def adjusted(entry):
        entry = {key: value for key, value in entry.items() if key != "compile_config"}
        if entry.get("name") in tied and "vocabulary_size" in entry:
            # KerasHub 0.32 omits this option from the config of a Llama.
            entry.setdefault("tie_word_embeddings", True)
        return entry

    return map_config(adjusted, config)


def _is_llama(layer_class):
    return "LlamaBackbone" in [x.__name__ for x in layer_class.__mro__]


def map_config(function, config):
    """Apply a function to every dictionary of a config, outer dictionaries first, and return the new config."""
    if isinstance(config, dict):
        return {key: map_config(function, value) for key, value in function(config).items()}
    if isinstance(config, (list, tuple)):
        return type(config)(map_config(function, value) for value in config)
    return config


def rebuild(config, model):
    """Rebuild a model from a config, even if the classes of its layers are not registered."""
    classes = {getattr(type(layer), "converted_from", type(layer)) for layer in keras_private.flatten_layers(model)}
    user_classes = {x.__name__: x for x in classes if x.__module__.split(".")[0] not in KNOWN_PACKAGES}
    try:
        new = keras.saving.deserialize_keras_object(config, custom_objects=user_classes, safe_mode=False)
    except (TypeError, NotImplementedError, ValueError) as error:
        raise ValueError(
            f"The model cannot be rebuilt from its config: {error} Give its class a `get_config` that returns all "
            f"arguments of its `__init__`. Received: model={model}"
        ) from error
    if not new.built:
        raise ValueError(
            "The rebuilt model is not built: define `build` in the class of the model, or `get_build_config` and "
            f"`build_from_config`. Received: model={model}"
        )
    return new


def refuse_changed_layers(model, lora=True):
    """Raise ValueError if a layer is quantized or, with `lora=True`, has LoRA."""
    for x in keras_private.flatten_layers(model):
        has_lora = lora and getattr(x, "lora_enabled", False)
        if has_lora or getattr(x, "quantization_mode", None) is not None:
            call = "enable_lora" if has_lora else "quantize"
            hint = f"Call `to_bayesian` first, and `{call}` on the result."
            if not lora:
                hint = "A quantized model cannot be converted back: call `to_deterministic` before `quantize`."
            raise ValueError(f"{hint} Received: a layer that `{call}` changed, path={x.path!r}")


def copy_weights(sources, targets):
    """Copy weights and their `trainable` flags. Raise ValueError if the shapes of the weights differ."""
    if [tuple(weight.shape) for weight in sources] != [tuple(weight.shape) for weight in targets]:
        raise ValueError(
            "The rebuilt model has different weights: `get_config` of the original does not describe it completely. "
            f"Received: {len(sources)} weights, {len(targets)} after rebuilding"
        )
    for source, target in zip(sources, targets, strict=True):
        target.assign(source)
        target.trainable = source.trainable


def copy_state(model, new, excluded=()):
    """Copy a model's `trainable` flags, vocabularies and statistics computed from weights, but not its weights.

    Args:
        model: A model.
        new: A model with the same layers.
        excluded: Layers of `model` that `new` does not have.
    """
    old_layers, new_layers = model_layers(model, excluded), model_layers(new)
    if len(old_layers) != len(new_layers):
        raise ValueError(
            "The rebuilt model has a different number of layers. This happens if two layers share a sublayer: "
            f"rebuilding creates two sublayers. Received: {len(old_layers)} layers, {len(new_layers)} after rebuilding"
        )
    for old, copied in zip(old_layers, new_layers, strict=True):
        if old.trainable != copied.trainable:
            copied.trainable = old.trainable
        has_state = type(old).load_own_variables is not keras.layers.Layer.load_own_variables
        if has_state and isinstance(old, type(copied)):
            store = {}
            old.save_own_variables(store)
            copied.load_own_variables({key: np.asarray(value) for key, value in store.items()})
    for old, copied in zip(_with_assets(model), _with_assets(new), strict=True):
        with tempfile.TemporaryDirectory() as folder:
            old.save_assets(folder)
            copied.load_assets(folder)


def model_layers(model, excluded=()):
    """Return the layers of a model, except input layers, layers of the preprocessor, and the layers in `excluded`."""
    # The excluded layers may differ between a model and a rebuilt copy.
    excluded_layers = [*excluded, *_preprocessing(model)]
    excluded_ids, all_layers = {id(layer) for layer in excluded_layers}, keras_private.flatten_layers(model)
    return [x for x in all_layers if id(x) not in excluded_ids and not isinstance(x, keras.layers.InputLayer)]


def _preprocessing(model):
    preprocessor = getattr(model, "preprocessor", None)
    return [] if preprocessor is None else keras_private.flatten_layers(preprocessor)


def _with_assets(model):
    # In KerasHub 0.25, the layers of a task do not include its preprocessor.
    layers = dict.fromkeys([*keras_private.flatten_layers(model), *_preprocessing(model)])
    return [layer for layer in layers if hasattr(layer, "save_assets")]
