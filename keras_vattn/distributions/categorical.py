from keras import ops

from keras_vattn import random
from keras_vattn.distributions.row_distribution import RowDistribution, relaxed_density
from keras_vattn.support import tfp


class Categorical(tfp.Categorical):
    """Categorical distribution over the keys of each row, with log-probabilities as the parameter.

    The KL is at least 0, even after rounding. The gradient of the KL is always the gradient of the formula.

    Formula:
        "KL"(q || p) = sum_s q_s (log q_s - log p_s)

    Args:
        log_probabilities: (B, T, S), with -1e30 (not -inf) at masked keys. If the probabilities of a row do not sum to
            1, the KL is wrong.

    Example:

    >>> log_p = keras.ops.convert_to_tensor([[-0.6931472, -0.6931472, -1e30]])
    >>> q = keras_vattn.distributions.Categorical(log_p)
    >>> q.entropy()
    <tf.Tensor: shape=(1,), dtype=float32, numpy=array([0.6931472], dtype=float32)>
    """

    def __init__(self, log_probabilities):
        super().__init__(logits=log_probabilities)
        self.log_probabilities = log_probabilities
        self._parameters = {"log_probabilities": log_probabilities}

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return {"log_probabilities": tfp.ParameterProperties(event_ndims=1)}


@tfp.RegisterKL(Categorical, Categorical)
def _to_categorical(q, p, name=None):
    return _divergence(q.logits, p.logits, lambda x: ops.sum(x, axis=-1))


class RelaxedCategorical(RowDistribution):
    """Distribution of Gumbel-softmax weights, on the simplex (Jang et al. 2017; Maddison et al. 2017).

    The mean and the KL of the relaxed distributions have no closed form. `kl_divergence` returns the KL between the
    categorical distributions with the same probabilities, which does not depend on the temperatures. In the formula, n
    is the number of valid keys of a row.

    Formula:
        w_s = "softmax"_s((log p_s + g_s) / tau), quad g_s ~ "Gumbel"(0, 1), quad log p_s = "log_probabilities"_s
        p(w) = (n - 1)! tau^(n - 1) (prod_s p_s w_s^(-tau - 1)) / (sum_s p_s w_s^(-tau))^n

    Args:
        temperature: tau, a positive number or scalar tensor.
        log_probabilities: (..., S). Leading axes of length 1 broadcast. The probabilities of a row must sum to 1.
        keys: A `keras_vattn.Keys`, which defines the valid keys of each row.

    Example:

    >>> log_p = keras.ops.log_softmax(keras.ops.zeros((3, 4)))
    >>> keys = keras_vattn.DenseKeys()
    >>> keras_vattn.distributions.RelaxedCategorical(0.5, log_p, keys).sample(seed=1).shape
    TensorShape([3, 4])
    """

    on_simplex = True

    def __init__(self, temperature, log_probabilities, keys):
        parameters = dict(locals())
        super().__init__(log_probabilities, keys, parameters)
        self.temperature, self.log_probabilities = temperature, self.like

    def log_density(self, log_value):
        return relaxed_density(self.log_probabilities - self.temperature * log_value, self.temperature, self.keys)

    def log_sample(self, shape, seed):
        return self.keys.log_softmax((self.log_probabilities + random.gumbel(shape, seed)) / self.temperature)


@tfp.RegisterKL(RelaxedCategorical, RelaxedCategorical)
def _to_relaxed_categorical(q, p, name=None):
    return _divergence(q.log_probabilities, p.log_probabilities, q.keys.sum)


def _divergence(log_q, log_p, total):
    divergence = total(ops.exp(log_q) * (log_q - log_p))
    return divergence + ops.stop_gradient(ops.maximum(-divergence, 0.0))
