import math

from keras import ops

from keras_vattn import random
from keras_vattn.distributions.row_distribution import RowDistribution
from keras_vattn.support import tfp
from keras_vattn.support.special import bounded_square


class LogNormal(RowDistribution):
    """Lognormal draws S of each row: log S is normal, of mean `loc` and standard deviation `scale`.

    KL = log(s' / s) + (s^2 + (m - m')^2) / (2 s'^2) - 1/2 of each entry; a distance of more than 1e14 standard
    deviations is bounded smoothly.

    Args:
        loc: Mean of log S, (..., S), or what broadcasts to it with an axis of keys.
        scale: Standard deviation of log S, a positive number.
        keys: A `keras_vattn.Keys`: which entries are a row.

    Example:

    >>> q = keras_vattn.distributions.LogNormal(keras.ops.zeros((3, 4)), 0.5, keras_vattn.DenseKeys())
    >>> float(q.mean()[0, 0]) == float(keras.ops.exp(0.125))
    True
    """

    def __init__(self, loc, scale, keys):
        parameters = dict(locals())
        super().__init__(loc, keys, parameters)
        self.loc, self.scale = self.like, scale

    def log_mean(self):
        return self.loc + 0.5 * self.scale**2

    def relative_variance(self):
        return math.expm1(self.scale**2)

    def log_density(self, log_value):
        distance = _square(self.scale)((log_value - self.loc) / self.scale)
        return -0.5 * distance - math.log(self.scale) - 0.5 * math.log(2.0 * math.pi)

    def log_draw(self, normal):
        """Return log S of a standard normal for each entry."""
        return self.loc + self.scale * normal

    def log_sample(self, shape, seed):
        return self.log_draw(random.normal(shape, seed))


@tfp.RegisterKL(LogNormal, LogNormal)
def _to_log_normal(q, p, name=None):
    distance = _square(p.scale)((q.loc - p.loc) / p.scale) + (q.scale / p.scale) ** 2 - 1.0
    return q.keys.sum(math.log(p.scale / q.scale) + 0.5 * distance)


def _square(scale):
    # Logits up to 1e4 stay below the bound where sigma is not tiny.
    return bounded_square if scale < 1e-9 else ops.square
