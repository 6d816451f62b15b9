import tensorflow as tf
from keras import ops

from keras_vattn.distributions.row_distribution import RowDistribution
from keras_vattn.support import tfp


class Categorical(tfp.Categorical):
    """Distribution over the keys of each row, from logarithms of probabilities, -1e30 and not -inf at a masked key.

    The KL is never below 0, and its gradient is that of the formula where rounding would take it there.

    Args:
        log_probabilities: (B, T, S), whose exp sums to 1.

    Example:

    >>> q = keras_vattn.distributions.Categorical(keras.ops.log([[0.5, 0.5, 1e-30]]))
    >>> q.entropy()
    <tf.Tensor: shape=(1,), dtype=float32, numpy=array([0.6931472], dtype=float32)>
    """

    def __init__(self, log_probabilities):
        super().__init__(logits=log_probabilities)
        self.log_probabilities = log_probabilities
        self._parameters = self._no_dependency({"log_probabilities": log_probabilities})

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return {"log_probabilities": tfp.ParameterProperties(event_ndims=1)}


@tfp.RegisterKL(Categorical, Categorical)
def _to_categorical(q, p, name=None):
    return _divergence(q.logits, p.logits, lambda x: ops.sum(x, axis=-1))


class RelaxedCategorical(RowDistribution):
    """Gumbel-softmax draws of each row, on the simplex (Jang et al. 2017; Maddison et al. 2017).

    The relaxed distribution has no KL in closed form. What stands for it is the KL of the underlying categoricals, a
    surrogate that is 0 where they are equal.

    Args:
        temperature: tau, positive: a number or scalar tensor.
        logits: (..., S), or what broadcasts to it with an axis of keys.
        keys: A `keras_vattn.Keys`: which entries are a row. Draws and densities need `keras_vattn.DenseKeys`.

    Example:

    >>> q = keras_vattn.distributions.RelaxedCategorical(0.5, keras.ops.zeros((3, 4)), keras_vattn.DenseKeys())
    >>> q.sample(seed=1).shape
    TensorShape([3, 4])
    """

    def __init__(self, temperature, logits, keys):
        parameters = dict(locals())
        super().__init__(logits, keys, parameters)
        self.temperature, self.logits = temperature, self.like

    def log_mean(self):
        """log softmax(logits), the mean of the weights for tau to 0."""
        return self.keys.log_softmax(self.logits)

    def _sample_n(self, n, seed=None):
        return self._plain().sample(n, seed=seed)

    def _log_prob(self, value):
        return self._plain().log_prob(value)

    def _plain(self):
        self.keys.require_dense()
        logits = tf.broadcast_to(self.keys.mask_out(self.logits), self._shape_tensor())
        return tfp.RelaxedOneHotCategorical(self.temperature, logits=logits)


@tfp.RegisterKL(RelaxedCategorical, RelaxedCategorical)
def _to_relaxed_categorical(q, p, name=None):
    return _divergence(q.log_mean(), p.log_mean(), q.keys.sum)


def _divergence(log_q, log_p, total):
    divergence = total(ops.exp(log_q) * (log_q - log_p))
    return divergence + ops.stop_gradient(ops.maximum(-divergence, 0.0))
