import math

import keras
from keras import ops

from keras_vattn import distributions, random
from keras_vattn.alignments.alignment import Alignment
from keras_vattn.distributions.gamma import at_the_mean
from keras_vattn.distributions.weibull import log_exponential
from keras_vattn.support.special import scaled_exponential_gap
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

    Against a prior p is a Gamma; the KL stands at `keras_vattn.distributions.Gamma`. Against posterior logits p is a
    Weibull of the same k, and the KL grows as exp(k (phi_q - phi_p)): with the default k and logits a few nats apart it
    is beyond use; take a small k, `LogNormal` or `Dirichlet`.

    The KL to a Gamma never reaches 0. Where E[S] is the prior's mean it is f(alpha) = log k - g - 1 + alpha (g / k +
    log Gamma(1 + 1/k)) + log Gamma(alpha) - alpha log alpha + alpha, with Euler's constant g, which is convex: a row of
    n keys has at least n f(beta / n) under a contextual prior, 3.9 nats a key for 20 keys with the defaults. The log
    shows the KL, and the KL above this floor.

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

    def posterior(self, logits, keys):
        if self.parameterization == "normalized":
            return distributions.Weibull(self.k, keys.log_softmax(logits), keys, sums_to_one=True)
        return distributions.Weibull(self.k, keys.zero_masked(logits), keys)

    def prior(self, prior, log_psi, logits, keys):
        log_beta = math.log(prior.beta)
        if log_psi is None:
            log_alpha = keys.one_per_key(math.log(prior.alpha), logits)
        else:
            log_alpha = log_psi + log_beta if prior.scale == "rate" else log_psi
        return distributions.Gamma(log_alpha, log_beta, keys)

    def divergence_floor(self, prior, log_psi, logits, keys):
        # For a given sum of alpha over the keys both terms of the KL are least where all keys have the same alpha and
        # the same E[S]; a normalised E[S] sums to one, whatever the prior's mean sums to.
        p = self.prior(prior, log_psi, logits, keys)
        keys_of_row = keys.count(logits)
        count = ops.maximum(keys_of_row, 1.0)
        log_total = ops.log(ops.maximum(keys.sum(ops.exp(p.log_mean())), 1e-37))
        floor = count * at_the_mean(self.k, log_total + p.log_rate - ops.log(count))
        if self.parameterization == "normalized":
            floor = floor + scaled_exponential_gap(log_total + p.log_rate, -log_total)
        return ops.where(keys_of_row > 0.0, floor, 0.0)

    def get_config(self):
        return {"k": self.k, "parameterization": self.parameterization, "kl_estimator": self.kl_estimator}
