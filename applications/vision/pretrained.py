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
    """Return the network of keras.applications that `ExtractorOptions` name, with the weights of a file: float32 images
    (B, side, side, 3) to maps (B, H, W, D). A file with other weights is an `InputError`."""
    shape = (options.side, options.side, 3)
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
            f"--weights: {options.weights}: expected the weights of {options.network} without its top. "
            f"Received: {_first_line(error)}"
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
