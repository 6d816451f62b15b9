import math
from functools import partial

import keras
from keras import ops

from keras_vattn import distributions, random
from keras_vattn.alignments.alignment import Alignment
from keras_vattn.alignments.priors import LogNormalPrior
from keras_vattn.alignments.weibull import KL_ESTIMATORS, KL_OF, PARAMETERIZATIONS
from keras_vattn.support.validation import one_of, positive_number, refuse_unread


@keras.saving.register_keras_serializable(package="keras_vattn")
class LogNormal(Alignment):
    """Lognormal alignment of the Bayesian attention modules: the weights are normalised lognormal draws.

    See Fan et al. 2020, section 3.2. A lognormal draw S is normalised to give the weights. Inference uses softmax(phi)
    of the logits phi, which is the normalised E[S], not the mean of the weights. As sigma goes to 0, the draws approach
    softmax(phi).

    The KL compares q and p, two distributions of S. `keras_vattn.distributions.LogNormal` documents the formula.
    `parameterization="normalized"` follows the code of Fan et al. 2020. `"raw"` follows the formula in their paper.

    - With a `LogNormalPrior`, as in Fan et al. 2020, the prior defines p.
    - With a `FixedPrior`, a `ContextualPrior` or posterior logits, p is a LogNormal with the sigma of q.

    With `kl_of="weights"`, q and p are distributions of the normalised weights,
    `keras_vattn.distributions.LogisticNormal`. The KL has a closed form, and never exceeds the KL of S. The option
    `parameterization="raw"` would have no effect on the weights, so this combination raises an error.

    Formula:
        log S_(t,s) = log m_(t,s) - sigma^2 / 2 + sigma epsilon_(t,s), quad epsilon_(t,s) ~ "Normal"(0, 1)
        bb E[S_(t,s)] = m_(t,s) = "softmax"_s(phi_(t,s)) quad "(normalized)", quad m_(t,s) = exp(phi_(t,s)) quad "(raw)"
        w_(t,s) = S_(t,s) / (sum_(s') S_(t,s')) = "softmax"_s(phi_(t,s) + sigma epsilon_(t,s))

    Args:
        sigma: Standard deviation of log S, positive. Defaults to 0.5.
        parameterization, kl_estimator, kl_of: As in `keras_vattn.Weibull`, with the same defaults.

    Raises:
        ValueError: If `sigma` is not positive, a string is not an option, or an argument would have no effect.

    Example:

    >>> alignment = keras_vattn.LogNormal(sigma=0.1)
    >>> layer = keras_vattn.Attention(alignment=alignment, prior="contextual")
    >>> query, value = keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 4))
    >>> layer(query, value, training=True).shape, len(layer.losses)
    (TensorShape([2, 3, 4]), 1)
    """

    is_stochastic = True
    priors = {"fixed": partial(LogNormalPrior, 0.0), "contextual": LogNormalPrior}

    def __init__(self, sigma=0.5, parameterization="normalized", kl_estimator="analytic", kl_of="draws"):
        self.sigma = positive_number("sigma", sigma)
        self.parameterization = one_of("parameterization", parameterization, PARAMETERIZATIONS)
        self.kl_estimator = one_of("kl_estimator", kl_estimator, KL_ESTIMATORS)
        self.kl_of = one_of("kl_of", kl_of, KL_OF)
        if kl_of == "weights":
            refuse_unread(self, "kl_of", parameterization="normalized")

    def noise(self, shape, seed):
        return random.normal(shape, seed)

    def perturb(self, logits, noise, keys):
        return logits if noise is None else logits + self.sigma * noise

    def posterior(self, logits, keys):
        phi = keys.log_softmax(logits) if self.parameterization == "normalized" else keys.zero_masked(logits)
        return distributions.LogNormal(phi - 0.5 * self.sigma**2, self.sigma, keys)

    def divergence_floor(self, prior, p, logits, keys):
        if isinstance(p, distributions.LogisticNormal):
            floor, count = self._entry_floor(p.scale), ops.maximum(keys.count(logits) - 1.0, 0.0)
            return None if floor == 0.0 else count * floor
        if not isinstance(p, distributions.LogNormal):
            return None
        floor = self._entry_floor(p.scale)
        if self.parameterization == "raw" or not isinstance(prior, LogNormalPrior) or prior.reads_keys:
            return None if floor == 0.0 else keys.of_count(lambda count: count * floor, logits)

        def row_floor(count):
            # The posterior mean of log S, averaged over the keys, is at most -log(count) - sigma^2 / 2.
            distance = prior.mean + 0.5 * self.sigma**2 + ops.log(ops.maximum(count, 1.0))
            return count * (floor + 0.5 * ops.square(ops.maximum(distance, 0.0) / p.scale))

        return keys.of_count(row_floor, logits)

    def _entry_floor(self, scale):
        """Return the KL of one weight S if log S has the same mean in q and p."""
        ratio = self.sigma / scale
        return 0.5 * (ratio**2 - 1.0) - math.log(ratio)

    def get_config(self):
        return {
            "sigma": self.sigma,
            "parameterization": self.parameterization,
            "kl_estimator": self.kl_estimator,
            "kl_of": self.kl_of,
        }
