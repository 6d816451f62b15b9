import keras
from keras import ops

from keras_vattn.scores.additive import Additive
from keras_vattn.support.validation import one_of, positive_integer

LOCATIONS = ("previous", "cumulative")


@keras.saving.register_keras_serializable(package="keras_vattn")
class LocationSensitive(Additive):
    """Location-sensitive score, which also depends on the previous weights (Chorowski et al. 2015, eqs. 8 and 9).

    The score convolves filters F with earlier attention weights w:

    - `location="previous"`: the weights of the previous step, as in Chorowski et al. 2015.
    - `location="cumulative"`: the sum of the weights of all previous steps, common in speech synthesis.

    At the first step, these weights are zeros. Use this score in a `keras_vattn.AttentionDecoder`, which passes the
    weights from step to step. Calling a `keras_vattn.Attention` with this score raises an error.

    Formula:
        phi_(t,s) = v^T tanh(W_1 "query"_t + W_2 "key"_s + U f_(t,s) + b)
        f_t = "conv"(w_(t-1), F) quad "(previous)", quad f_t = "conv"(sum_(t' < t) w_(t'), F) quad "(cumulative)"

    Args:
        units: Width of the hidden layer, an integer, or `None` for the width of the query. Defaults to `None`.
        filters: Number of filters of the convolution. Defaults to 10.
        kernel_size: Width of each filter in source positions. The filters are centred. Defaults to 31.
        location: `"previous"` or `"cumulative"`. Defaults to `"previous"`.
        use_bias: Whether to add b. Defaults to `True`.
        kernel_initializer: Initializer of W_1, W_2, v, U and F. Defaults to `"glorot_uniform"`.

    Call arguments:
        query: (B, T, Dq).
        key: (B, S, Dk).

    Returns:
        Logits (B, T, S). If you call the score directly, the previous weights are zeros.

    Raises:
        ValueError: If `units`, `filters` or `kernel_size` is not a positive integer, or `location` is unknown.

    Example:

    >>> score = keras_vattn.LocationSensitive(filters=4, kernel_size=5)
    >>> attention = keras_vattn.Attention(score)
    >>> decoder = keras_vattn.AttentionDecoder(8, attention, query="previous")
    >>> decoder(keras.ops.ones((2, 4, 3)), keras.ops.ones((2, 9, 6)))["context"].shape
    TensorShape([2, 4, 6])
    """

    keeps_state = True

    def __init__(
        self,
        units=None,
        filters=10,
        kernel_size=31,
        location="previous",
        use_bias=True,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(units=units, use_bias=use_bias, kernel_initializer=kernel_initializer, **kwargs)
        self.filters = positive_integer("filters", filters)
        self.kernel_size = positive_integer("kernel_size", kernel_size)
        self.location = one_of("location", location, LOCATIONS)

    def build(self, query_shape, key_shape):
        super().build(query_shape, key_shape)
        self.location_filters = self.add_weight(
            name="location_filters",
            shape=(self.kernel_size, self.filters),
            initializer=self.kernel_initializer.clone(),
        )
        self.location_kernel = self.add_weight(
            name="location_kernel",
            shape=(self.filters, self.query_kernel.shape[-1]),
            initializer=self.kernel_initializer.clone(),
        )

    def initial_state(self, batch_size, num_keys):
        """Return zeros (B, S), the previous weights at the first step."""
        return ops.zeros((batch_size, num_keys), self.compute_dtype)

    def next_state(self, state, weights):
        """Return the state of the next step. `weights` (B, S) are the weights of this step."""
        return weights if self.location == "previous" else state + weights

    def score(self, query, projected_keys, state=None):
        if state is not None:
            projected_keys = projected_keys + self._location(state)
        return super().score(query, projected_keys)

    def _location(self, state):
        dtype = self.compute_dtype
        # One convolution with the product of F and U replaces a convolution and a matrix product.
        kernel = ops.matmul(ops.cast(self.location_filters, dtype), ops.cast(self.location_kernel, dtype))
        return ops.conv(state[..., None], kernel[:, None, :], padding="same")  # (B, S, units)

    def get_config(self):
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "location": self.location,
        }
