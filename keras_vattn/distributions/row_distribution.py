import tensorflow as tf
from keras import ops

from keras_vattn import random
from keras_vattn.support import tfp

# Without this minimum, the logarithm of a draw that underflows in float32 would be -inf.
SMALLEST = 1.2e-38


class RowDistribution(tfp.Distribution):
    """Base class for distributions of the weights S in each row of an alignment, before normalisation by default.

    An event is a row, that is, the weights of one query. `log_prob` and the KL read only the valid keys of a row, and
    return one float32 value per row, in nats. Masked positions are 0 in every draw. With `SegmentKeys`, the event is
    the array (E,) of all weights, but `log_prob` and the KL still return one value for each of the N rows. `log_sample`
    and `log_density` compute log S, so they stay finite even if S is outside the range of float32.

    A subclass implements `log_density(log_value)`, the log density of log S for each weight. The other methods are
    optional:

    - `log_mean()` returns log E[S]. `mean` needs this method.
    - `relative_variance()` returns Var[S] / E[S]^2. `variance` needs this method and `log_mean`.
    - `log_sample(shape, seed)` draws log S. The argument `shape` ends with the shape of the weights.
    - `log_draw(noise)` returns log S for the noise of the alignment. An estimated KL then uses the draw of the weights.
    - `normalized()` returns the distribution of the normalised weights, for a KL on the simplex.

    Formula:
        log p(S) = sum_s ("log_density"(log S_s) - log S_s)

    Attributes:
        on_simplex: Whether the weights of a row sum to one.

    Args:
        like: A parameter that has the shape of the weights, or broadcasts to this shape.
        keys: A `keras_vattn.Keys`, which defines the valid keys of each row.
        parameters: Dictionary of the constructor arguments of the subclass.

    Example:

    >>> class LogLogistic(keras_vattn.distributions.RowDistribution):
    ...     def __init__(self, loc, keys):
    ...         super().__init__(loc, keys, {"loc": loc, "keys": keys})
    ...     def log_density(self, log_value):
    ...         distance = log_value - self.like
    ...         return distance - 2.0 * keras.ops.softplus(distance)
    >>> q = LogLogistic(keras.ops.zeros((3, 4)), keras_vattn.DenseKeys())
    >>> round(float(q.log_prob(keras.ops.ones((3, 4)))[0]), 3)  # four times log(1 / 4)
    -5.545
    """

    def __init__(self, like, keys, parameters):
        self.like, self.keys = ops.convert_to_tensor(like, "float32"), keys
        super().__init__(
            dtype=tf.float32,
            reparameterization_type=tfp.FULLY_REPARAMETERIZED,
            validate_args=False,
            allow_nan_stats=True,
            parameters=parameters,
        )

    on_simplex = False

    def normalized(self):
        """Return the distribution of the normalised weights w = S / sum_s S, on the simplex."""
        if self.on_simplex:
            return self
        raise ValueError(f"{type(self).__name__} does not implement `normalized`, which a KL on the simplex needs.")

    def log_density(self, log_value):
        raise NotImplementedError(f"{type(self).__name__} does not implement `log_density`.")

    def log_mean(self):
        raise NotImplementedError(f"{type(self).__name__} does not implement `log_mean`.")

    def relative_variance(self):
        raise NotImplementedError(f"{type(self).__name__} does not implement `relative_variance`.")

    def _log_prob(self, value):
        log_value = ops.log(ops.maximum(self.keys.where_valid(value, 1.0), SMALLEST))
        return self.keys.sum(self.log_density(log_value) - log_value)

    def _mean(self):
        return self.keys.zero_masked(ops.exp(self.log_mean()))

    def _variance(self):
        return ops.square(self._mean()) * self.relative_variance()

    def _sample_n(self, n, seed=None):
        shape = tf.concat([[n], self._shape_tensor()], axis=0)
        return self.keys.zero_masked(ops.exp(self.log_sample(shape, tfp.sanitize_seed(seed))))

    def _shape(self):
        valid = self.keys.valid
        return self.like.shape if valid is None else tf.broadcast_static_shape(self.like.shape, valid.shape)

    def _shape_tensor(self):
        shape, valid = tf.shape(self.like), self.keys.valid
        return shape if valid is None else tf.broadcast_dynamic_shape(shape, tf.shape(valid))

    def _batch_shape(self):
        return self._shape()[:-1]

    def _batch_shape_tensor(self):
        return self._shape_tensor()[:-1]

    def _event_shape(self):
        return self._shape()[-1:]

    def _event_shape_tensor(self):
        return self._shape_tensor()[-1:]

    def __getitem__(self, slices):
        raise NotImplementedError(f"A {type(self).__name__} cannot be sliced. Slice a result, e.g. `mean()[0]`.")

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return {}


def relaxed_density(x, power, keys):
    """Return a term per key. The terms of the n valid keys of a row sum to log p(log w).

    Formula:
        p(log w) = (n - 1)! "power"^(n - 1) (prod_s exp(x_s)) / (sum_s exp(x_s))^n
    """
    count = ops.maximum(keys.count(x), 1.0)
    row_term = tf.math.lgamma(count) + (count - 1.0) * ops.log(ops.cast(power, "float32"))
    return keys.log_softmax(x) + keys.spread(row_term / count)


def closed_divergence(q, p, keys):
    """Return KL(q || p) of each row, or `None` if the KL is not registered in TensorFlow Probability."""
    try:
        return _row_values(tfp.kl_divergence(q, p), q, keys)
    except NotImplementedError as error:
        # Without this check, a NotImplementedError inside the KL of a `RowDistribution` would be hidden. TensorFlow
        # Probability raises other NotImplementedErrors if q and p are transformed differently.
        if isinstance(q, RowDistribution) and "registered" not in str(error):
            raise
        return None


def mean_divergence(q, p, keys, seed, num_draws):
    """Return the mean of `drawn_divergence` over `num_draws` draws, with one draw in memory at a time."""

    def add(draw, total):
        return draw + 1, total + drawn_divergence(q, p, keys, random.fold_in(seed, draw))

    first = drawn_divergence(q, p, keys, random.fold_in(seed, 0))
    # Without `maximum_iterations`, XLA could not differentiate the loop.
    _, total = tf.while_loop(
        lambda draw, total: draw < num_draws, add, (1, first), parallel_iterations=1, maximum_iterations=num_draws - 1
    )
    return total / num_draws


def drawn_divergence(q, p, keys, seed, noise=None):
    """Return log q(S) - log p(S) of each row for one draw S from q, an unbiased estimate of KL(q || p).

    Args:
        q: Distribution with one event per row or one event per weight.
        p: Distribution with one event per row or one event per weight.
        keys: A `keras_vattn.Keys`.
        seed: int32 tensor of shape (2,), for a new draw.
        noise: Noise of an earlier draw, or `None` for a new draw. Only `RowDistribution`s use it. Defaults to `None`.

    Raises:
        ValueError: If the draws of q have no gradient.
    """
    if isinstance(q, RowDistribution) and isinstance(p, RowDistribution):
        log_draw = q.log_sample(ops.shape(q.like), seed) if noise is None else q.log_draw(noise)
        return keys.sum(q.log_density(log_draw) - p.log_density(log_draw))
    if q.reparameterization_type != tfp.FULLY_REPARAMETERIZED:
        raise ValueError(
            "This KL is not registered, so it is estimated from draws of q. The draws need a gradient: use a fully "
            f"reparameterized q, or `tfd.RegisterKL`. Received: q={type(q).__name__}, p={type(p).__name__}"
        )
    draw = q.sample(seed=seed)
    log_q, log_p = q.log_prob(draw), p.log_prob(draw)
    if q.event_shape.rank == p.event_shape.rank:
        return _row_values(log_q - log_p, q, keys)
    return _row_values(log_q, q, keys) - _row_values(log_p, p, keys)


def _row_values(x, distribution, keys):
    """Return one value per row. If an event is a single weight, sum x over the keys of each row."""
    return x if distribution.event_shape.rank else keys.sum(x)
