import math

import keras
from keras import ops

from keras_vattn import random
from keras_vattn.alignments.alignment import Alignment
from keras_vattn.support import tfp
from keras_vattn.support.special import (
    bounded_exp,
    bounded_exponential_gap,
    log_gamma_remainder,
    scaled_exponential_gap,
)
from keras_vattn.support.validation import one_of, positive_number

KL_ESTIMATORS = ("analytic", "sampled")
PARAMETERIZATIONS = ("normalized", "raw")


@keras.saving.register_keras_serializable(package="keras_vattn")
class Weibull(Alignment):
    """Weibull alignment of the Bayesian attention modules: weights are normalised Weibull draws.

    S[t, s] ~ Weibull(k, lambda[t, s]), lambda = exp(phi) / Gamma(1 + 1/k), weights = S / sum_s S (Fan et al. 2020,
    section 3.2). In log space the weights are softmax(phi + log(-log(1 - u)) / k), u uniform. Inference takes
    softmax(phi), which is E[S] normalised and not quite the mean of the weights (at k = 1 a weight of 0.60 has the mean
    0.51). For k to infinity this is softmax attention.

    The KL is on S, so the scale of phi matters: `parameterization="normalized"` takes phi = log softmax(logits), as the
    published code does, `"raw"` phi = logits, as the formula is printed. With `"normalized"` E[S] sums to one and the
    KL compares it with a prior of mean Psi; with `"raw"` the logits' free scale enters the KL as well, which grows with
    exp(logits); the exponential is bounded smoothly above e^60. The normalised form is the default because a
    contextual prior, which sums to one, can be met by it.

    Against a prior p is a Gamma, KL(Weibull(k, lambda) || Gamma(alpha, beta)) = gE alpha / k - alpha log lambda + log k
    + beta lambda Gamma(1 + 1/k) - gE - 1 - alpha log beta + log Gamma(alpha), gE Euler's constant; it is computed as a
    sum of terms that do not cancel, finite for beta from 1e-15 to 1e15. Against posterior logits p is a Weibull of the
    same k, and the KL grows as exp(k (phi_q - phi_p)): with the default k and logits a few nats apart it is beyond use;
    take a small k, `LogNormal` or `Dirichlet`.

    The KL to a Gamma never reaches 0. Where E[S] is the prior's mean it is f(alpha) = log k - gE - 1 + alpha (gE / k +
    log Gamma(1 + 1/k)) + log Gamma(alpha) - alpha log alpha + alpha, which is convex: a row of n keys has at least
    n f(beta / n) under a contextual prior, 3.9 nats a key for 20 keys with the defaults. The log shows the KL, and the
    KL above this floor.

    Args:
        k: Shape, positive; the larger, the less noise. Defaults to 10.0.
        parameterization: `"normalized"` or `"raw"`. Defaults to `"normalized"`.
        kl_estimator: `"analytic"`, or `"sampled"` for log q(S) - log p(S) at the draw (the paper's ablation), which has
            the same mean and more variance; a call that does not draw is always analytic. Defaults to `"analytic"`.

    Raises:
        ValueError: If `k` is not positive, or a name is unknown.

    Example:

    >>> layer = keras_vattn.Attention(alignment=keras_vattn.Weibull(k=50.0), prior="contextual")
    >>> layer(keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 4)), training=True).shape, len(layer.losses)
    (TensorShape([2, 3, 4]), 1)
    """

    is_stochastic = True
    takes_seed_stacks = True

    def __init__(self, k=10.0, parameterization="normalized", kl_estimator="analytic"):
        self.k = positive_number("k", k)
        self.parameterization = one_of("parameterization", parameterization, PARAMETERIZATIONS)
        self.kl_estimator = one_of("kl_estimator", kl_estimator, KL_ESTIMATORS)

    def noise(self, shape, seed):
        return random.uniform(shape, seed)

    def perturb(self, logits, noise, keys):
        return logits if noise is None else logits + log_exponential(noise) / self.k

    def prior_arguments(self, prior):
        return ("alpha", "beta", "scale")

    def prior_parameters(self, prior, log_psi):
        log_beta = math.log(prior.beta)
        if log_psi is None:
            return {"log_alpha": math.log(prior.alpha), "log_beta": log_beta}
        return {"log_alpha": log_psi + log_beta if prior.scale == "rate" else log_psi, "log_beta": log_beta}

    def divergence_from_prior(self, logits, p, keys, noise=None):
        log_mean = self._log_mean(logits, keys)
        log_draw = self._log_draw(noise)
        if log_draw is None and self.parameterization == "normalized" and p["log_beta"] < _LARGEST_LOG_BETA:
            return self._to_gamma_by_products(log_mean, p, keys)
        return keys.sum(self._to_gamma(log_mean, p, log_draw))

    def divergence_from_logits(self, logits, prior_logits, keys, noise=None):
        distance = self.k * (self._log_mean(logits, keys) - self._log_mean(prior_logits, keys))
        log_draw = self._log_draw(noise)
        if log_draw is None:
            return keys.sum(bounded_exponential_gap(distance))
        return keys.sum(bounded_exp(distance + log_draw) - ops.exp(log_draw) - distance)

    def _log_draw(self, noise):
        """Return the logarithm of the exponential draw that S is made of, `None` where the KL is the closed form."""
        return log_exponential(noise) if self.kl_estimator == "sampled" and noise is not None else None

    def _to_gamma(self, log_mean, p, log_draw):
        log_alpha = ops.convert_to_tensor(p["log_alpha"], "float32")
        log_prior_mean = log_alpha - p["log_beta"]
        if log_draw is None:
            # a (e^d - 1 - d), at least 0, is the whole dependence on the posterior's mean.
            return scaled_exponential_gap(log_alpha, log_mean - log_prior_mean) + self._at_the_mean_of(log_alpha)
        log_s = log_mean - self._log_gamma + log_draw / self.k
        gap = scaled_exponential_gap(log_alpha, log_s - log_prior_mean)
        return gap + log_gamma_remainder(log_alpha) + math.log(self.k) + log_draw - ops.exp(log_draw)

    def _at_the_mean_of(self, log_alpha):
        """Return the KL to a Gamma whose mean is E[S]; it is convex in alpha, and beta has no say in it."""
        constant = math.log(self.k) - _EULER - 1.0
        slope = _EULER / self.k + self._log_gamma
        return log_gamma_remainder(log_alpha) + bounded_exp(log_alpha) * slope + constant

    def divergence_floor(self, p, keys, logits):
        # For a given sum of alpha over the keys both terms of `_to_gamma` are least where all keys have the same alpha
        # and the same E[S]; a normalised E[S] sums to one, whatever the prior's mean sums to.
        keys_of_row = keys.count(logits)
        count = ops.maximum(keys_of_row, 1.0)
        prior_mean = ops.exp(keys.one_per_key(p["log_alpha"] - p["log_beta"], logits))
        log_total = ops.log(ops.maximum(keys.sum(prior_mean), 1e-37))
        floor = count * self._at_the_mean_of(log_total + p["log_beta"] - ops.log(count))
        if self.parameterization == "normalized":
            floor = floor + scaled_exponential_gap(log_total + p["log_beta"], -log_total)
        return ops.where(keys_of_row > 0.0, floor, 0.0)

    def _to_gamma_by_products(self, log_mean, p, keys):
        # The exponentials of normalised logits sum to one, so a row is -sum alpha phi and terms of p alone. The terms
        # cancel for a large beta, for which the form above is there.
        log_alpha = keys.zero_masked(keys.one_per_key(p["log_alpha"], log_mean))
        alpha = keys.zero_masked(ops.exp(log_alpha))
        slope = alpha * (log_alpha - p["log_beta"] - 1.0 + _EULER / self.k + self._log_gamma)
        constant = keys.sum(slope + log_gamma_remainder(log_alpha) + math.log(self.k) - _EULER - 1.0)
        # Where there is a key at all.
        total = math.exp(p["log_beta"]) * ops.minimum(keys.count(log_mean), 1.0)
        return constant + total - keys.sum(alpha * log_mean)

    def distribution(self, logits, keys):
        scale = ops.exp(self._log_mean(logits, keys) - self._log_gamma)
        return tfp.Weibull(concentration=self.k, scale=scale)

    def prior_distribution(self, p, logits, keys):
        return tfp.Gamma(concentration=ops.exp(p["log_alpha"]), rate=ops.exp(p["log_beta"]))

    @property
    def _log_gamma(self):
        """log Gamma(1 + 1/k), by which log lambda stays below log E[S]."""
        return math.lgamma(1.0 + 1.0 / self.k)

    def _log_mean(self, logits, keys):
        return keys.log_softmax(logits) if self.parameterization == "normalized" else keys.zero_masked(logits)

    def get_config(self):
        return {"k": self.k, "parameterization": self.parameterization, "kl_estimator": self.kl_estimator}


_EULER = 0.5772156649015329
_LARGEST_LOG_BETA = math.log(1e3)


def log_exponential(uniform):
    """Return log(-log(1 - u)), finite for every u in [0, 1]."""
    return ops.log(-ops.log1p(-ops.clip(uniform, random.SMALLEST, random.LARGEST)))
