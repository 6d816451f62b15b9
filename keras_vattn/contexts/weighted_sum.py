import keras

from keras_vattn.contexts.context import Context


@keras.saving.register_keras_serializable(package="keras_vattn")
class WeightedSum(Context):
    """Deterministic context, the weighted sum of the values (Bahuleyan et al. 2018, eq. 5).

    Formula:
        c_t = sum_s w_(t,s) "value"_s

    Call arguments:
        weights: (B, T, S), on the simplex.
        value: (B, S, D).

    Returns:
        The context (B, T, D).

    Example:

    >>> weights, value = keras.ops.ones((2, 3, 4)) / 4, keras.ops.ones((2, 4, 5))
    >>> keras_vattn.WeightedSum()(weights, value)[0, 0, 0]
    <tf.Tensor: shape=(), dtype=float32, numpy=1.0>
    """

    def build(self, weights_shape, value_shape):
        pass
