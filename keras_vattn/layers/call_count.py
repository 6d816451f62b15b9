import warnings

import keras
import tensorflow as tf

from keras_vattn.support import keras_private


class CallCount(keras.losses.Loss, tf.Module):
    """Count of the training calls of a layer. The count is saved with the layer, but is not a weight of the layer.

    Keras files contain the variables of a loss, and TensorFlow checkpoints contain the variables of a module. So this
    class inherits from both, but is never called as a loss. The variable of a sublayer would be a weight.

    Args:
        layer: The layer. The path of the variable begins with the name of the layer.
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
        # A file of a deterministic layer has no count.
        if "0" in store.keys():  # noqa: SIM118
            self.variable.assign(store["0"])
