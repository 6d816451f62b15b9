"""Refuses any other Keras backend than TensorFlow, with one sentence that says how to set it."""

import os

MESSAGE = (
    "keras_vattn needs the TensorFlow backend of Keras. Set it before anything imports Keras: KERAS_BACKEND=tensorflow "
    'in the environment, or "backend": "tensorflow" in keras.json in your Keras folder. Received: backend={!r}'
)


def require_tensorflow():
    """Raise ImportError if Keras runs, or is set to run, on another backend."""
    requested = os.environ.get("KERAS_BACKEND", "tensorflow")
    if requested != "tensorflow":
        raise ImportError(MESSAGE.format(requested))
    try:
        import keras
    except ImportError as error:
        raise ImportError(MESSAGE.format("the one in keras.json")) from error

    if keras.backend.backend() != "tensorflow":
        raise ImportError(MESSAGE.format(keras.backend.backend()))
