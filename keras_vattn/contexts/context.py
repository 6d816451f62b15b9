import keras
from keras import ops

from keras_vattn.support import tfp
from keras_vattn.support.features import FeatureInputs
from keras_vattn.support.masks import first_mask
from keras_vattn.support.products import product


class Context(FeatureInputs, keras.layers.Layer):
    """Base class of the contexts, which map weights and values to the attended vector.

    `call(weights, value)` returns the weighted sum of the values. This sum is the mean of a stochastic context. A
    recurrent decoder calls `noise` and `prior_parameters` before its loop, `posterior_parameters` and `sample` inside
    the loop, and `distribution` and `prior_distribution` after the loop.

    A subclass with a KL sets `has_divergence = True`. The KL is `tfd.kl_divergence(q, p)` of the posterior q and the
    prior p.

    Call arguments:
        weights: (B, T, S), on the simplex.
        value: (B, S, D).

    Returns:
        The mean of the context, (B, T, D).

    Example:

    >>> context = keras_vattn.WeightedSum()
    >>> context(keras.ops.ones((2, 3, 4)) / 4, keras.ops.ones((2, 4, 5))).shape
    TensorShape([2, 3, 5])
    """

    feature_arguments = ("value",)
    has_divergence = False
    temperature = 1.0

    def noise(self, shape, seed):
        """Return float32 noise of shape (B, T, D) for all steps, or `None` for a context without noise."""
        return None

    def posterior_parameters(self, mean):
        """Return a dictionary of tensors (B, T, D): the parameters of the posterior except the mean."""
        return {}

    def prior_parameters(self, value, keys):
        """Return the mean of the prior, (B, T or 1, D), or `None` for a mean of 0."""
        return None

    def sample(self, mean, parameters, noise, temperature=1.0):
        """Return a sample (B, T, D). If `noise` is `None`, return the mean."""
        return mean

    def distribution(self, mean, parameters):
        """Return the posterior, a TensorFlow Probability distribution of batch shape (B, T), event shape (D,)."""
        return tfp.VectorDeterministic(mean)

    def prior_distribution(self, mean, prior_mean):
        """Return the prior, a distribution with the batch and event shapes of the posterior."""
        raise ValueError(f"The context {type(self).__name__} has no KL: its context vector is deterministic.")

    def call(self, weights, value):
        return product(ops.cast(weights, value.dtype), value)

    def compute_output_shape(self, weights_shape, value_shape):
        return (*weights_shape[:-1], value_shape[-1])

    def compute_output_spec(self, weights, value):
        return keras.KerasTensor(self.compute_output_shape(weights.shape, value.shape), dtype=self.compute_dtype)

    def compute_mask(self, weights, previous_mask=None):
        return first_mask(previous_mask)

    def get_config(self):
        # Without this method, Keras could not serialise the layer if its `dtype` is a policy object.
        return super().get_config()
