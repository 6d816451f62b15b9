import keras
import tensorflow as tf

from keras_vattn import random


class SeededScope(keras.StatelessScope):
    """A scope in which no Keras variable changes, and the states of seed generators are derived from one seed.

    Every read of a state returns a new value.

    Args:
        seed: int32 tensor (2,).
    """

    def __init__(self, seed):
        super().__init__(collect_losses=True, initialize_variables=False)
        self.seed, self.num_reads = seed, 0

    def get_current_value(self, variable):
        if not _is_seed_state(variable):
            return super().get_current_value(variable)
        self.num_reads += 1
        return tf.cast(tf.bitcast(random.fold_in(self.seed, self.num_reads), tf.uint32), variable.dtype)

    def add_update(self, update):
        if not _is_seed_state(update[0]):
            super().add_update(update)


def _is_seed_state(variable):
    # `keras.random.SeedGenerator` gives its state this name.
    return variable.name == "seed_generator_state"
