import tensorflow as tf
from keras import ops

from keras_vattn.support import tfp


class RowDistribution(tfp.Distribution):
    """Base class: the distribution of the positive entries S of each row of an alignment, before they are normalised.

    A row is one event: `log_prob` and the KL are one value for each row, in nats, float32, over its valid keys alone,
    and a masked position is 0 in every draw. (Of `SegmentKeys` all entries (E,) are the event, and the values are
    those of the N rows.) Parameters are in log space, so that no draw and no density leaves float32.

    A subclass defines `log_density`, `log_mean` and `log_sample`, whose arrays are those of the entries.

    Args:
        like: A tensor of the shape of the entries, or one that broadcasts to it.
        keys: A `keras_vattn.Keys`: which entries are a row.
        parameters: The arguments of the subclass, a dictionary.

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

    def log_density(self, log_value):
        """Return the logarithm of the density of log S at each entry."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `log_density`.")

    def log_mean(self):
        """Return log E[S] of each entry."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `log_mean`.")

    def relative_variance(self):
        """Return Var[S] / E[S]^2 of each entry."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `relative_variance`.")

    def log_sample(self, shape, seed):
        """Return log S of draws, of a shape that ends in that of the entries."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `log_sample`.")

    def _log_prob(self, value):
        log_value = self.keys.zero_masked(ops.log(self.keys.where_valid(value, 1.0)))
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
        raise NotImplementedError(f"A {type(self).__name__} is one of all rows: slice what it returns.")

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return {}


def closed_divergence(q, p, keys):
    """Return the KL(q || p) of each row that is registered for these two, or `None` where none is."""
    try:
        return _of_rows(tfp.kl_divergence(q, p), q, keys)
    except NotImplementedError:
        return None


def divergence_at(q, p, log_draw, keys):
    """Return log q(S) - log p(S) of each row at a draw, given its logarithm, finite at masked keys too."""
    if isinstance(q, RowDistribution) and isinstance(p, RowDistribution):
        return keys.sum(q.log_density(log_draw) - p.log_density(log_draw))
    draw = ops.exp(log_draw)
    log_q, log_p = q.log_prob(draw), p.log_prob(draw)
    if q.event_shape.rank == p.event_shape.rank:
        return _of_rows(log_q - log_p, q, keys)
    return _of_rows(log_q, q, keys) - _of_rows(log_p, p, keys)


def _of_rows(x, distribution, keys):
    """Return one value for each row: of a distribution of whole rows x is that, of one of entries it is summed."""
    return x if distribution.event_shape.rank else keys.sum(x)
