import math

import keras
import numpy as np
import tensorflow as tf


@keras.saving.register_keras_serializable(package="keras_vattn")
class FusedAdam(keras.optimizers.Adam):
    """`keras.optimizers.Adam` in one pass over every weight, by TensorFlow's own kernel.

    It has the same arguments, variables and results, up to rounding; Keras's takes a dozen passes. `global_clipnorm`
    scales the gradients if their norm is larger, and otherwise leaves them in place. `amsgrad=True` uses Keras's code,
    and so does the step of an embedding without `global_clipnorm`.

    Args:
        learning_rate: Number or schedule. Defaults to 0.001.
        **kwargs: All other arguments of `keras.optimizers.Adam`.

    Example:

    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile(keras_vattn.fast.FusedAdam(0.01, global_clipnorm=5.0), loss="mse")
    >>> history = model.fit(keras.ops.ones((8, 3)), keras.ops.ones((8, 1)), verbose=0)
    """

    def update_step(self, gradient, variable, learning_rate):
        # Of a gradient that is rows of a weight, with some of them twice, Keras sums the squares.
        if self.amsgrad or isinstance(gradient, tf.IndexedSlices):
            super().update_step(gradient, variable, learning_rate)
            return
        dtype, index = variable.dtype, self._get_variable_index(variable)
        step = tf.cast(self.iterations + 1, dtype)
        # The kernel's 1 - beta_2 is what is left of it in this type, 0.00100005 in float32, and Keras's is 0.001; its
        # velocities are larger by as much, which the rate makes good.
        one, beta_2 = np.asarray([1.0, self.beta_2], tf.as_dtype(dtype).as_numpy_dtype)
        growth = math.sqrt(float(one - beta_2) / (1.0 - self.beta_2))
        variable = variable.value if isinstance(variable, keras.Variable) else variable
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=tf.pow(tf.constant(self.beta_1, dtype), step),
            beta2_power=tf.pow(tf.constant(self.beta_2, dtype), step),
            lr=tf.cast(learning_rate, dtype) * growth,
            beta1=tf.constant(self.beta_1, dtype),
            beta2=tf.constant(self.beta_2, dtype),
            epsilon=tf.constant(self.epsilon * growth, dtype),
            grad=tf.cast(tf.convert_to_tensor(gradient), dtype),
        )

    def _clip_gradients(self, grads):
        if self.clipnorm or not self.global_clipnorm:
            return super()._clip_gradients(grads)
        # As in Keras: of an embedding's gradient, the norm of all its rows, those of one word apart.
        norm = tf.linalg.global_norm([x for x in grads if x is not None])
        grads = [None if x is None else tf.convert_to_tensor(x) for x in grads]
        given = [x for x in grads if x is not None]
        # A norm that is no finite number makes the gradients NaN, as in Keras.
        scale = self.global_clipnorm / tf.maximum(norm, self.global_clipnorm) + (norm - norm)
        scaled = iter(
            tf.cond(tf.equal(scale, 1.0), lambda: given, lambda: [x * tf.cast(scale, x.dtype) for x in given])
        )
        return [None if x is None else next(scaled) for x in grads]
