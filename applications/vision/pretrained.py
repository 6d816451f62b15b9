"""Networks with the weights of a file; none are downloaded."""

import warnings
import zipfile
import zlib

import keras

from applications.common.errors import InputError

# Errors of Keras and h5py for a foreign file, or for a file of another network.
_UNREADABLE = (
    *(AttributeError, EOFError, ImportError, KeyError, OSError, RuntimeError, TypeError, ValueError),
    *(zipfile.BadZipFile, zlib.error),
)


def pretrained_network(options):
    """Return a network of keras.applications with the weights of a file, or the model of a .keras file in its place.

    Args:
        options: `ExtractorOptions`.

    Returns:
        A `keras.Model` from float32 images (B, side, side, 3) to maps (B, H, W, D).

    Raises:
        InputError: If the file cannot be read, or has another network.
    """
    place, shape = f"--weights: {options.weights}", (options.side, options.side, 3)
    if options.weights.endswith(".keras"):
        network = load_network(options.weights)
        try:
            maps = network(keras.Input(shape))
        except (TypeError, ValueError) as error:
            received = _first_line(error)
            raise InputError(f"{place}: expected a network of images {shape}. Received: {received}") from error
        if not isinstance(maps, keras.KerasTensor) or len(maps.shape) != 4 or None in maps.shape[1:]:
            raise InputError(f"{place}: expected a network without its top, whose outputs are maps. Received: {maps}")
        return network
    try:
        network = getattr(keras.applications, options.network)(include_top=False, weights=None, input_shape=shape)
    except ValueError as error:
        raise InputError(f"--image-size: {options.network} cannot be built. Received: {_first_line(error)}") from error
    try:
        with warnings.catch_warnings():
            # Weights that the file lacks are an error, too.
            warnings.simplefilter("ignore")
            network.load_weights(options.weights)
    except _UNREADABLE as error:
        raise InputError(
            f"{place}: expected the weights of {options.network} without its top. Received: {_first_line(error)}"
        ) from error
    return network


def load_network(path):
    """Return the model of a .keras file; no code of the file runs."""
    try:
        return keras.saving.load_model(path, compile=False)
    except _UNREADABLE as error:
        raise InputError(f"{path}: expected a .keras model. Received: {_first_line(error)}") from error


def _first_line(error):
    return str(error).strip().partition("\n")[0]
