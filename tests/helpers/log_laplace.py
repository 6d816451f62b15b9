"""Defines a custom alignment as a user would write it. The class must work without any change to the library."""

import keras
from keras import ops
from tensorflow_probability.python.bijectors import Exp
from tensorflow_probability.python.distributions import Laplace, TransformedDistribution

from keras_vattn import Alignment, random


@keras.saving.register_keras_serializable(package="tests")
class LogLaplace(Alignment):
    """Weights are normalised samples of exp(Laplace(log softmax(logits), b))."""

    is_stochastic = True

    def __init__(self, b=0.5):
        self.b = b

    def noise(self, shape, seed):
        centred = random.uniform(shape, seed) - 0.5
        return -ops.sign(centred) * ops.log1p(-2.0 * ops.abs(centred))

    def perturb(self, logits, noise, keys):
        return logits if noise is None else logits + self.b * noise

    def posterior(self, logits, keys):
        return TransformedDistribution(Laplace(keys.log_softmax(logits), self.b), Exp())

    def get_config(self):
        return {"b": self.b}
