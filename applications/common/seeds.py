"""Draws initial weights that do not depend on the order in which layers are created."""

import zlib

import keras


def draw_initial_weights(layers, seed):
    """Reinitialize the weights of built layers, so that they depend only on `seed` and the layers' names.

    Nested models are included. Every layer needs an explicit name, because Keras numbers unnamed layers in the order of
    their creation. The new weights come from a copy, built from the layer's config.
    """
    for layer in layers:
        if isinstance(layer, keras.Model):
            draw_initial_weights(layer.layers, seed)
        elif layer.weights:
            keras.utils.set_random_seed(zlib.crc32(f"{seed} {layer.name}".encode()))
            copy = type(layer).from_config(layer.get_config())
            copy.build_from_config(layer.get_build_config())
            layer.set_weights(copy.get_weights())
    keras.utils.set_random_seed(seed)
