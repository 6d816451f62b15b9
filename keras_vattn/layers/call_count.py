import warnings

import keras
import tensorflow as tf

from keras_vattn.support import keras_private


class CallCount(keras.losses.Loss, tf.Module):
    """Count of a layer's training calls. It is saved with the layer, in Keras files and TensorFlow checkpoints, but is
    not a weight of the layer.

    Keras saves the variables of a loss, and TensorFlow saves the variables of a module, so this class is both a loss
    and a module. It is not a layer, because the variables of a sublayer would be weights. It is never called as a loss.

    Args:
        layer: The layer. The path of the variable begins with the layer's name.
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
        """Warn if Keras is writing a `.h5` file, which stores weights but not this count."""
        if keras_private.writes_legacy_file() and int(self.variable.numpy()):
            warnings.warn(
                "A .h5 file does not store the count of training calls: in a model loaded from it, annealing starts "
                f"again. Save a .keras file instead. Received: {self.variable.path}",
                stacklevel=2,
            )

    def save_own_variables(self, store):
        store["0"] = self.variable.numpy()

    def load_own_variables(self, store):
        # The file may be from a deterministic layer, which has no count.
        if "0" in store.keys():  # noqa: SIM118
            self.variable.assign(store["0"])
