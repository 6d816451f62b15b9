import math

import keras
from keras import ops

from keras_vattn import distributions, random
from keras_vattn.alignments.alignment import Alignment
from keras_vattn.alignments.weibull import KL_ESTIMATORS, PARAMETERIZATIONS
from keras_vattn.support.validation import one_of, positive_number


@keras.saving.register_keras_serializable(package="keras_vattn")
class LogNormal(Alignment):
    """Lognormal alignment of the Bayesian attention modules: weights are normalised lognormal draws.

    S[t, s] ~ LogNormal(phi[t, s] - sigma^2 / 2, sigma^2), weights = S / sum_s S (Fan et al. 2020, section 3.2). In log
    space the weights are softmax(phi + sigma e), e normal; their mean is taken as softmax(phi), which is E[S]
    normalised. For sigma to 0 this is softmax attention.

    The KL is on S, and stands at `keras_vattn.distributions.LogNormal`; phi = log softmax(logits) for
    `parameterization="normalized"` (the published code), phi = logits for `"raw"` (the printed formula). The prior's
    mean of log S is the mean of a `FixedPrior`, or log Psi (`scale="rate"`, the published code) or Psi (`"paper"`) of a
    `ContextualPrior`. Against posterior logits p is a LogNormal of the same sigma.

    Args:
        sigma: Standard deviation of log S, positive. Defaults to 0.5.
        parameterization: `"normalized"` or `"raw"`. Defaults to `"normalized"`.
        kl_estimator: `"analytic"`, or `"sampled"` for log q(S) - log p(S) at the draw; a call that does not draw is
            always analytic. Defaults to `"analytic"`.

    Raises:
        ValueError: If `sigma` is not positive, or a name is unknown.

    Example:

    >>> layer = keras_vattn.Attention(alignment=keras_vattn.LogNormal(sigma=0.1), prior="contextual")
    >>> layer(keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 4)), training=True).shape, len(layer.losses)
    (TensorShape([2, 3, 4]), 1)
    """

    is_stochastic = True

    def __init__(self, sigma=0.5, parameterization="normalized", kl_estimator="analytic"):
        self.sigma = positive_number("sigma", sigma)
        self.parameterization = one_of("parameterization", parameterization, PARAMETERIZATIONS)
        self.kl_estimator = one_of("kl_estimator", kl_estimator, KL_ESTIMATORS)

    def noise(self, shape, seed):
        return random.normal(shape, seed)

    def perturb(self, logits, noise, keys):
        return logits if noise is None else logits + self.sigma * noise

    def prior_arguments(self, prior):
        return ("mean", "sigma", "scale")

    def posterior(self, logits, keys):
        phi = keys.log_softmax(logits) if self.parameterization == "normalized" else keys.zero_masked(logits)
        return distributions.LogNormal(phi - 0.5 * self.sigma**2, self.sigma, keys)

    def prior(self, prior, log_psi, logits, keys):
        if log_psi is None:
            mean = keys.one_per_key(prior.mean, logits)
        else:
            mean = log_psi if prior.scale == "rate" else ops.exp(log_psi)
        return distributions.LogNormal(mean, prior.sigma, keys)

    def divergence_floor(self, prior, log_psi, logits, keys):
        ratio = self.sigma / prior.sigma
        floor = 0.5 * (ratio**2 - 1.0) - math.log(ratio)
        distance = 0.0
        if self.parameterization == "normalized" and log_psi is None:
            # Where exp(phi) sums to one, no phi is closer to a larger constant than the one that is equal everywhere.
            count = ops.maximum(keys.count(logits), 1.0)
            distance = ops.maximum(prior.mean + 0.5 * self.sigma**2 + ops.log(count), 0.0) / prior.sigma
        elif ratio == 1.0:
            return None
        return keys.count(logits) * (floor + 0.5 * ops.square(distance))

    def get_config(self):
        return {"sigma": self.sigma, "parameterization": self.parameterization, "kl_estimator": self.kl_estimator}
