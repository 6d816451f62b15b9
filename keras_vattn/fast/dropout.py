import keras
import tensorflow as tf

from keras_vattn import random


@keras.saving.register_keras_serializable(package="keras_vattn")
class Dropout(keras.layers.Dropout):
    """Replacement for `keras.layers.Dropout` that is faster under XLA on a CPU.

    With the same seed, both layers compute the same mask in float32 without XLA. XLA or another dtype changes the mask
    of Keras's layer, but not the mask of this layer. Each replica uses a different mask.

    Args:
        rate: Probability in [0, 1] that a number is set to 0.
        **kwargs: All other arguments of `keras.layers.Dropout`: `noise_shape` and `seed`.

    Call arguments:
        inputs: Tensor of any shape.
        training: Whether to apply dropout.

    Returns:
        A tensor with the shape and dtype of the inputs. Numbers that are not dropped are divided by 1 - rate.

    Raises:
        ValueError: If the rate is outside [0, 1], or if the inputs are not floats.

    Example:

    >>> x = keras.ops.ones((2, 3))
    >>> ours, theirs = (x.Dropout(0.5, seed=1) for x in (keras_vattn.fast, keras.layers))
    >>> bool(keras.ops.all(ours(x, training=True) == theirs(x, training=True)))
    True
    """

    def call(self, inputs, training=False):
        if not training or not 0 < self.rate < 1:
            return super().call(inputs, training)
        inputs = tf.convert_to_tensor(inputs)
        if not inputs.dtype.is_floating:
            raise ValueError(f"`inputs` must be floats. Received: inputs.dtype={inputs.dtype.name}")
        shape = tf.shape(inputs)
        if self.noise_shape is not None:
            shape = tuple(shape[axis] if size is None else size for axis, size in enumerate(self.noise_shape))
        elif inputs.shape.is_fully_defined():
            shape = tuple(inputs.shape)
        keep_mask = random.dropout_mask(shape, self.rate, random.dropout_seed(self.seed_generator))
        dropped = tf.where(keep_mask, inputs * (1.0 / (1.0 - self.rate)), tf.zeros((), inputs.dtype))
        return tf.ensure_shape(dropped, inputs.shape)
