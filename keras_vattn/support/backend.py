"""Check that Keras uses the TensorFlow backend, and warn if `tf.keras` is Keras 2."""

import os
import warnings

MESSAGE = (
    "keras_vattn needs the TensorFlow backend of Keras. Set it before anything imports Keras: KERAS_BACKEND=tensorflow "
    'in the environment, or "backend": "tensorflow" in keras.json in your Keras folder. Received: backend={!r}'
)


def require_tensorflow():
    """Raise ImportError if Keras uses, or will use, a backend other than TensorFlow. Warn if `tf.keras` is Keras 2."""
    requested = os.environ.get("KERAS_BACKEND", "tensorflow")
    if requested != "tensorflow":
        raise ImportError(MESSAGE.format(requested))
    try:
        import keras
    except ImportError as error:
        raise ImportError(MESSAGE.format("the value in keras.json")) from error

    if keras.backend.backend() != "tensorflow":
        raise ImportError(MESSAGE.format(keras.backend.backend()))
    if os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True"):
        warnings.warn(
            "With TF_USE_LEGACY_KERAS=1, `tf.keras` is Keras 2, whose models ignore the weights and KLs of keras_vattn "
            "layers. Unset it, or use `keras` instead of `tf.keras`.",
            stacklevel=3,
        )
