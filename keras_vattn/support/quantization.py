"""Save and restore which sublayers of a layer are quantized. The config of a layer does not contain this."""

import keras

from keras_vattn.support import keras_private


def quantized(layers):
    """Return [index, mode, config] for each quantized layer in a list of layers."""
    return [
        [
            index,
            layer.quantization_mode,
            keras.saving.serialize_keras_object(getattr(layer, "quantization_config", None)),
        ]
        for index, layer in enumerate(layers)
        if getattr(layer, "quantization_mode", None) is not None
    ]


def restore_quantization(layers, records):
    """Quantize layers as listed in `records`, a result of `quantized`. Call this before loading the weights."""
    for index, mode, config in records:
        # Two configs may list the same sublayer. Keras rejects a second quantization.
        if layers[index].quantization_mode is None:
            layers[index].quantize(mode, type_check=False, config=keras.saving.deserialize_keras_object(config))


class QuantizedSublayers:
    """Mixin for layers that create sublayers. The build config stores which sublayers are quantized."""

    def get_build_config(self):
        config, records = super().get_build_config(), quantized(keras_private.flatten_layers(self))
        return {**config, "quantized": records} if records else config

    def build_from_config(self, config):
        super().build_from_config(config)
        restore_quantization(keras_private.flatten_layers(self), config.get("quantized", ()))
