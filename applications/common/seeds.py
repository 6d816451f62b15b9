"""Initial weights that do not depend on the order in which layers are created."""

import zlib

import keras


def draw_initial_weights(layers, seed):
    """Draw the initial weights of built layers again, each layer's from `seed` and its name alone.

    Models among the layers are entered. A copy of a layer, made from its config, draws the weights; the layer must
    have a name of its own, because Keras numbers the others in the order of their creation.
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
