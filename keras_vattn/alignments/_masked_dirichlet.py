import tensorflow as tf
from keras import ops

from keras_vattn.support import tfp


def dirichlet_divergence(concentration, prior_concentration, keys):
    """Return KL(Dirichlet(a) || Dirichlet(b)) over the valid keys of each row, in nats, float32 (B, T), at least 0.

    In float64: in float32 the terms, each up to 1e5, cancel to an error of several nats.
    """
    a, b = ops.cast(concentration, "float64"), ops.cast(prior_concentration, "float64")
    a_total, b_total = _total(a, keys), _total(b, keys)
    slope = tf.math.digamma(a) - keys.spread(tf.math.digamma(a_total))
    entries = tf.math.lgamma(b) - tf.math.lgamma(a) + (a - b) * slope
    divergence = tf.math.lgamma(a_total) - tf.math.lgamma(b_total) + keys.sum(entries)
    return ops.cast(ops.maximum(divergence, 0.0), "float32")


def _total(concentration, keys):
    total = keys.sum(concentration)
    return ops.where(total > 0.0, total, ops.ones_like(total))


class MaskedDirichlet(tfp.Distribution):
    """Dirichlet over the valid keys of each row: a masked position is 0 in every draw and no part of the density.

    Args:
        concentration: (B, T, S), positive.
        keys: `DenseKeys`.
    """

    def __init__(self, concentration, keys):
        parameters = dict(locals())
        self.concentration = tf.convert_to_tensor(concentration)
        self.keys = keys
        super().__init__(
            dtype=self.concentration.dtype,
            reparameterization_type=tfp.FULLY_REPARAMETERIZED,
            validate_args=False,
            allow_nan_stats=True,
            parameters=parameters,
            name="MaskedDirichlet",
        )

    def _batch_shape(self):
        return self.concentration.shape[:-1]

    def _batch_shape_tensor(self):
        return tf.shape(self.concentration)[:-1]

    def _event_shape(self):
        return self.concentration.shape[-1:]

    def _event_shape_tensor(self):
        return tf.shape(self.concentration)[-1:]

    def _sample_n(self, n, seed=None):
        # Gamma(a) is Gamma(a + 1) times u^(1/a): for a below 1e-4 the gradient of a plain draw is NaN.
        first, second = tfp.split_seed(seed)
        log_gamma = tfp.ExpGamma(self.concentration + 1.0, log_rate=0.0).sample(n, seed=first)
        uniform = tfp.uniform(tf.shape(log_gamma), seed=second, minval=2.0**-24)
        return self.keys.softmax(log_gamma + tf.math.log(uniform) / self.concentration)

    def _mean(self):
        return self.keys.softmax(tf.math.log(self.concentration))

    def _log_prob(self, value):
        a = self.concentration
        # A masked position counts log 1.
        log_value = tf.math.log(self.keys.where_valid(value, 1.0))
        entries = (a - 1.0) * log_value - tf.math.lgamma(a)
        return self.keys.sum(entries) + tf.math.lgamma(_total(a, self.keys))

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return {}


@tfp.RegisterKL(MaskedDirichlet, MaskedDirichlet)
def _kl_masked_dirichlets(q, p, name=None):
    return dirichlet_divergence(q.concentration, p.concentration, q.keys)
