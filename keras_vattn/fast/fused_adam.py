import math
import types

import keras
import numpy as np
import tensorflow as tf


@keras.saving.register_keras_serializable(package="keras_vattn")
class FusedAdam(keras.optimizers.Adam):
    """Replacement for `keras.optimizers.Adam` that updates each weight in one pass, with a TensorFlow kernel.

    Arguments and variables are the same as in Keras's Adam. Results agree up to rounding. Keras's slower code still
    runs for `amsgrad=True`, for sparse gradients (of embeddings) without `global_clipnorm`, and to clip accumulated
    gradients.

    Args:
        learning_rate: Number or schedule. Defaults to 0.001.
        **kwargs: All other arguments of `keras.optimizers.Adam`.

    Example:

    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile(keras_vattn.fast.FusedAdam(0.01, global_clipnorm=5.0), loss="mse")
    >>> history = model.fit(keras.ops.ones((8, 3)), keras.ops.ones((8, 1)), verbose=0)
    """

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        # Keras and TensorFlow would track a dictionary, but not a namespace.
        self.slots = types.SimpleNamespace(momentum={}, velocity={})
        self.max_norm = None
        if not self.gradient_accumulation_steps:
            # `apply` clips the gradients. Without this `None`, Keras would clip them again.
            self.max_norm, self.global_clipnorm = self.global_clipnorm, None

    def add_variable_from_reference(self, reference_variable, name=None, initializer="zeros"):
        slot = super().add_variable_from_reference(reference_variable, name=name, initializer=initializer)
        if name in vars(self.slots):
            variable = getattr(reference_variable, "value", reference_variable)
            for local in tf.distribute.get_strategy().experimental_local_results(variable):
                vars(self.slots)[name][local.ref()] = slot
        return slot

    def apply(self, grads, trainable_variables=None):
        if self.max_norm:
            grads = _clipped(grads, self.max_norm * (self.loss_scale_factor or 1.0))
        super().apply(grads, trainable_variables)

    def get_config(self):
        return {**super().get_config(), "global_clipnorm": self.max_norm or self.global_clipnorm}

    def update_step(self, gradient, variable, learning_rate):
        if self.amsgrad or isinstance(gradient, tf.IndexedSlices):
            super().update_step(gradient, variable, learning_rate)
            return
        variable = variable.value if isinstance(variable, keras.Variable) else variable
        dtype, key = variable.dtype, variable.ref()
        step = tf.cast(self.iterations + 1, dtype)
        # In float32 the kernel computes 1 - beta_2 as 0.00100005 instead of 0.001, so the velocities are 1.00005 times
        # too large. The factor sqrt(1.00005) on the learning rate and epsilon cancels this error.
        one, beta_2 = np.asarray([1.0, self.beta_2], tf.as_dtype(dtype).as_numpy_dtype)
        growth = math.sqrt(float(one - beta_2) / (1.0 - self.beta_2))
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self.slots.momentum[key].value.handle,
            v=self.slots.velocity[key].value.handle,
            beta1_power=tf.pow(tf.constant(self.beta_1, dtype), step),
            beta2_power=tf.pow(tf.constant(self.beta_2, dtype), step),
            lr=tf.cast(learning_rate, dtype) * growth,
            beta1=tf.constant(self.beta_1, dtype),
            beta2=tf.constant(self.beta_2, dtype),
            epsilon=tf.constant(self.epsilon * growth, dtype),
            grad=tf.cast(tf.convert_to_tensor(gradient), dtype),
        )


def _clipped(gradients, max_norm):
    """Return gradients (tensors or `None`), scaled to a global norm of at most `max_norm`."""
    if all(x is None for x in gradients):
        return gradients
    # Keras computes the norm of a sparse gradient before it adds rows with equal indices.
    norm = tf.linalg.global_norm([x for x in gradients if x is not None])
    gradients = [None if x is None else tf.convert_to_tensor(x) for x in gradients]
    tensors = [x for x in gradients if x is not None]
    # `norm - norm` makes all gradients NaN if the norm is infinite or NaN, as in Keras.
    scale = max_norm / tf.maximum(norm, max_norm) + (norm - norm)
    scaled = iter(
        tf.cond(tf.equal(scale, 1.0), lambda: tensors, lambda: [x * tf.cast(scale, x.dtype) for x in tensors])
    )
    return [None if x is None else next(scaled) for x in gradients]
