"""An alignment whose distributions have no registered KL, written as a user would, and of a known one."""

import keras
from tensorflow_probability.python import distributions as tfd

from keras_vattn import LogNormal


class Opaque(tfd.Distribution):
    """Lognormal entries under a class that no KL is registered for."""

    def __init__(self, loc, scale):
        self.plain, self.loc = tfd.LogNormal(loc, scale), loc
        super().__init__(
            dtype=self.plain.dtype,
            reparameterization_type=tfd.FULLY_REPARAMETERIZED,
            validate_args=False,
            allow_nan_stats=True,
        )

    def _batch_shape(self):
        return self.plain.batch_shape

    def _event_shape(self):
        return self.plain.event_shape

    def _log_prob(self, value):
        return self.plain.log_prob(value)

    def _sample_n(self, n, seed=None):
        return self.plain.sample(n, seed=seed)


@keras.saving.register_keras_serializable(package="tests")
class DrawnLogNormal(LogNormal):
    """LogNormal whose KL is estimated at one draw."""

    def posterior(self, logits, keys):
        return Opaque(super().posterior(logits, keys).loc, self.sigma)
