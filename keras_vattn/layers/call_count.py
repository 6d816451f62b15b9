import warnings

import keras
import tensorflow as tf

from keras_vattn.support import keras_private


class CallCount(keras.losses.Loss, tf.Module):
    """The count of a layer's training calls: saved with the layer, in Keras's files and in TensorFlow's checkpoints,
    and none of its weights.

    Keras saves the state of a loss, and TensorFlow that of a module; a layer takes neither for a layer, whose variables
    would be weights. As a loss it is never called.

    Args:
        layer: The layer, whose name the variable's path begins with.
    """

    def __init__(self, layer):
        tf.Module.__init__(self)
        with keras.name_scope(layer.name, caller=layer):
            self.variable = keras.Variable(
                "zeros",
                shape=(),
                dtype="int64",
                trainable=False,
                autocast=False,
                aggregation="only_first_replica",
                name="training_calls",
            )

    def warn_of_legacy_file(self):
        """Warn if Keras is writing a `.h5` file, which holds nothing but weights."""
        if keras_private.writes_legacy_file() and int(self.variable.numpy()):
            warnings.warn(
                "A .h5 file does not hold the count of training calls: in the model that is loaded from it, annealing "
                f"starts again. Save a .keras file. Received: {self.variable.path}",
                stacklevel=2,
            )

    def save_own_variables(self, store):
        store["0"] = self.variable.numpy()

    def load_own_variables(self, store):
        # A deterministic layer's file has none.
        if "0" in store.keys():  # noqa: SIM118
            self.variable.assign(store["0"])
