import keras
from keras import ops

from keras_vattn.support import tfp
from keras_vattn.support.features import FeatureInputs
from keras_vattn.support.masks import first_mask
from keras_vattn.support.products import product


class Context(FeatureInputs, keras.layers.Layer):
    """Base class of the contexts, which map weights and values to the attended vector.

    `call(weights, value)` returns the expected context, the weighted sum. A stochastic context draws around it. Noise,
    draw and KL are separate methods: a recurrent decoder draws all noise before its loop and adds the KL after it.

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
        """Return the parameters of the posterior except its mean, a dictionary of (B, T, D) tensors."""
        return {}

    def prior_parameters(self, value, keys):
        """Return the mean of the prior, (B, T or 1, D), or `None` for zero. Runs once per memory."""
        return None

    def sample(self, mean, parameters, noise, temperature=1.0):
        """Return a draw (B, T, D) from mean, `posterior_parameters` and noise, or the mean if `noise=None`."""
        return mean

    def distribution(self, mean, parameters):
        """Return q, a TensorFlow Probability distribution of batch shape (B, T) and event shape (D,). A context with a
        KL also defines `prior_distribution`; the KL is `tfd.kl_divergence` of the two distributions."""
        return tfp.VectorDeterministic(mean)

    def prior_distribution(self, mean, prior_mean):
        """Return p, with the batch and event shape of q."""
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
        # Keras cannot serialise a layer that has the default `get_config` and a dtype policy object.
        return super().get_config()
