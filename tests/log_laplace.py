"""An alignment that the library does not have, written as a user would: the test that no room needs a new door."""

import math

import keras
from keras import ops
from tensorflow_probability.python.bijectors import Exp
from tensorflow_probability.python.distributions import Laplace, TransformedDistribution

from keras_vattn import Alignment, random


@keras.saving.register_keras_serializable(package="tests")
class LogLaplace(Alignment):
    """Weights are normalised draws of exp(Laplace(log softmax(logits), b))."""

    is_stochastic = True

    def __init__(self, b=0.5):
        self.b = b

    def noise(self, shape, seed):
        centred = random.uniform(shape, seed) - 0.5
        return -ops.sign(centred) * ops.log1p(-2.0 * ops.abs(centred))

    def perturb(self, logits, noise, keys):
        return logits if noise is None else logits + self.b * noise

    def prior_parameters(self, prior, log_psi):
        return {"mean": prior.mean if log_psi is None else log_psi, "b": prior.sigma}

    def divergence_from_prior(self, logits, p, keys, noise=None):
        return self._divergence(keys.log_softmax(logits), p["mean"], p["b"], keys)

    def divergence_from_logits(self, logits, prior_logits, keys, noise=None):
        return self._divergence(keys.log_softmax(logits), keys.log_softmax(prior_logits), self.b, keys)

    def _divergence(self, mean, prior_mean, b, keys):
        distance = ops.abs(mean - prior_mean)
        return keys.sum(math.log(b / self.b) + distance / b + self.b / b * ops.exp(-distance / self.b) - 1.0)

    def distribution(self, logits, keys):
        return TransformedDistribution(Laplace(keys.log_softmax(logits), self.b), Exp())

    def prior_distribution(self, p, logits, keys):
        return TransformedDistribution(Laplace(ops.convert_to_tensor(p["mean"], "float32"), p["b"]), Exp())

    def get_config(self):
        return {"b": self.b}
