import keras
from keras import ops

from keras_vattn.support import tfp
from keras_vattn.support.features import FeatureInputs
from keras_vattn.support.masks import first_mask
from keras_vattn.support.products import product


class Context(FeatureInputs, keras.layers.Layer):
    """Base class of the contexts: what is the attended vector?

    `call(weights, value)` gives the expected context, the weighted sum. A stochastic context draws around it; its steps
    are methods of their own, so that a recurrent decoder can draw all noise before its loop and add the KL after it.

    Call arguments:
        weights: (B, T, S), on the simplex.
        value: (B, S, D).

    Returns:
        The expected context (B, T, D).

    Example:

    >>> context = keras_vattn.WeightedSum()
    >>> context(keras.ops.ones((2, 3, 4)) / 4, keras.ops.ones((2, 4, 5))).shape
    TensorShape([2, 3, 5])
    """

    feature_arguments = ("value",)
    has_divergence = False
    temperature = 1.0

    def noise(self, shape, seed):
        """Return float32 noise of shape (B, T, D) for every step, or `None` for a context without noise."""
        return None

    def posterior_parameters(self, mean):
        """Return what the posterior needs beside its mean, a dictionary of (B, T, D) tensors."""
        return {}

    def prior_parameters(self, value, keys):
        """Return the prior's mean, (B, T or 1, D), or `None` for zero. Runs once per memory."""
        return None

    def sample(self, mean, parameters, noise, temperature=1.0):
        """Return a draw (B, T, D) from mean, `posterior_parameters` and noise; `noise=None` asks for the mean."""
        return mean

    def distribution(self, mean, parameters):
        """Return q, a TensorFlow Probability distribution of batch shape (B, T) and event shape (D,). A context with a
        KL defines `prior_distribution` too; the KL is what `tfd.kl_divergence` returns for the two."""
        return tfp.VectorDeterministic(mean)

    def prior_distribution(self, mean, prior_mean):
        """Return p, of the batch and event shape of q."""
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
        # Keras refuses to serialise a layer that keeps its default `get_config` and was given a dtype policy object.
        return super().get_config()
