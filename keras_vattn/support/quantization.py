"""Saves which sublayers are quantised, since a config contains only the arguments of the layer itself."""

import keras

from keras_vattn.support import keras_private


def quantized(layers):
    """Return [index, mode, config] of each quantised layer in a list."""
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
    """Quantise layers as recorded by `quantized`. Call it before loading the weights."""
    for place, mode, config in places:
        # A config may contain the same layer twice, inside a converted layer and inside its original.
        if layers[place].quantization_mode is None:
            layers[place].quantize(mode, type_check=False, config=keras.saving.deserialize_keras_object(config))


class QuantizedSublayers:
    """Mixin of layers that create sublayers. The build config records which sublayers are quantised."""

    def get_build_config(self):
        config, places = super().get_build_config(), quantized(keras_private.flatten_layers(self))
        return {**config, "quantized": places} if places else config

    def build_from_config(self, config):
        super().build_from_config(config)
        restore_quantization(keras_private.flatten_layers(self), config.get("quantized", ()))
