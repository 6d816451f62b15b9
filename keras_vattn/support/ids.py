"""Word ids, labels and other integers, which arrive as floats if an input has no explicit dtype."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops


def as_integers(name, x, dtype="int64"):
    """Return a tensor of integers.

    `keras.Input` creates floats by default. Floats are therefore cast, as in `keras.layers.Embedding`.

    Raises:
        ValueError: For floats that are not whole numbers. Values in a graph are not checked.
    """
    x = ops.convert_to_tensor(x)
    if keras.backend.is_float_dtype(x.dtype) and not tf.is_symbolic_tensor(x):
        values = np.asarray(ops.cast(x, "float64"))
        invalid = values[~np.isfinite(values) | (values != np.round(values))]
        if invalid.size:
            raise ValueError(f"`{name}` must hold integers. Received: {name} with the value {invalid[0]}")
    return ops.cast(x, dtype)
