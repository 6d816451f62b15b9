"""An alignment without a closed form of its KL, written as a user would, and the same family with it to compare."""

import keras

from keras_vattn import LogNormal


@keras.saving.register_keras_serializable(package="tests")
class DrawnLogNormal(LogNormal):
    """LogNormal whose KL is estimated at one draw."""

    has_closed_form = False

    def log_draw(self, logits, noise, keys):
        return self._mean(logits, keys) + self.sigma * noise

    def divergence_from_prior(self, logits, p, keys, noise=None):
        return super(LogNormal, self).divergence_from_prior(logits, p, keys, noise)

    def divergence_from_logits(self, logits, prior_logits, keys, noise=None):
        return super(LogNormal, self).divergence_from_logits(logits, prior_logits, keys, noise)
