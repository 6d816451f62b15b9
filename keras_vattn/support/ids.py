"""Cast word ids, labels and other inputs to integers."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops


def as_integers(name, x, dtype="int64"):
    """Return x as a tensor of integers. Floats are valid, because `keras.Input` creates floats by default.

    Raises:
        ValueError: If a float is not a whole number. Values are not checked in graph mode.
    """
    x = ops.convert_to_tensor(x)
    if keras.backend.is_float_dtype(x.dtype) and not tf.is_symbolic_tensor(x):
        values = np.asarray(ops.cast(x, "float64"))
        invalid = values[~np.isfinite(values) | (values != np.round(values))]
        if invalid.size:
            raise ValueError(f"`{name}` must contain integers. Received: {name} with the value {invalid[0]}")
    return ops.cast(x, dtype)
