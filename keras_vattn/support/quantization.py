"""Saves which sublayers are quantised; a config lists only a layer's own arguments."""

import keras

from keras_vattn.support import keras_private


def quantized(layers):
    """Return how layers are quantised, a list of (place among them, mode, configuration)."""
    return [
        [
            place,
            layer.quantization_mode,
            keras.saving.serialize_keras_object(getattr(layer, "quantization_config", None)),
        ]
        for place, layer in enumerate(layers)
        if getattr(layer, "quantization_mode", None) is not None
    ]


def restore_quantization(layers, places):
    """Quantise layers as those that `quantized` was called with; their weights are loaded after it."""
    for place, mode, config in places:
        # A config may hold the config of the same layer twice, of a converted layer and of its original.
        if layers[place].quantization_mode is None:
            layers[place].quantize(mode, type_check=False, config=keras.saving.deserialize_keras_object(config))


class QuantizedSublayers:
    """Mixin of a layer that makes layers itself: its build config says which of them are quantised."""

    def get_build_config(self):
        config, places = super().get_build_config(), quantized(keras_private.flatten_layers(self))
        return {**config, "quantized": places} if places else config

    def build_from_config(self, config):
        super().build_from_config(config)
        restore_quantization(keras_private.flatten_layers(self), config.get("quantized", ()))
