from functools import partial

import keras
from keras import ops

from keras_vattn import distributions
from keras_vattn.alignments.alignment import Alignment
from keras_vattn.alignments.priors import GammaPrior
from keras_vattn.distributions.gamma import divergence_at_equal_means
from keras_vattn.distributions.weibull import log_noise
from keras_vattn.support.special import scaled_exponential_gap
from keras_vattn.support.validation import one_of, positive_number, refuse_unread

KL_ESTIMATORS = ("analytic", "sampled")
PARAMETERIZATIONS = ("normalized", "raw")
KL_OF = ("draws", "weights")


@keras.saving.register_keras_serializable(package="keras_vattn")
class Weibull(Alignment):
    """Weibull alignment of the Bayesian attention modules: weights are normalised Weibull draws.

    Fan et al. 2020, section 3.2. Inference takes softmax(phi), which is E[S] normalised and not quite the mean of the
    weights (at k = 1 a weight of 0.60 has the mean 0.51). As k goes to infinity this becomes softmax attention.

    The KL compares distributions of S, so the scale of E[S] matters. `parameterization="normalized"` is the published
    code's: E[S] sums to one, and the KL compares it with a prior of mean Psi. `"raw"` is the printed formula: the free
    scale of the logits enters the KL as well, which grows with exp(phi), bounded smoothly above e^60. The normalised
    form is the default because it can meet a contextual prior, which sums to one.

    The published prior is a `GammaPrior`; the formula of the KL stands at `keras_vattn.distributions.Gamma`. Against
    posterior logits, or a prior of its own family, p is a Weibull of the same k, and the KL grows as exp(k (phi_q -
    phi_p)): with the default k and logits a few nats apart it is beyond use.

    The model uses the weights alone. With `kl_of="weights"` q and p are distributions of the weights, on the simplex: q
    a `keras_vattn.distributions.NormalizedWeibull`, p the Dirichlet of a Gamma, or another such Weibull, to which the
    KL grows with k (phi_q - phi_p) itself. The bound of the same model is tighter, and no published system has it. The
    KL is estimated at the draw, by the mean of 16 fixed draws where a call does not draw. The scale of E[S] drops out:
    another `parameterization` would change nothing and is refused, as is another `kl_estimator`.

    The KL of the draws to a Gamma never reaches 0. It is f(alpha) for an entry whose E[S] is the prior's mean, with
    Euler's constant gamma, and f is convex: under a contextual prior a row of n keys has at least n f(beta / n), 3.9
    nats a key for 20 keys with the defaults. The log shows the KL, and the KL above this floor.

    Formula:
        S_(t,s) ~ "Weibull"(k, lambda_(t,s)), quad lambda_(t,s) = m_(t,s) / (Gamma(1 + 1/k))
        bb E[S_(t,s)] = m_(t,s) = "softmax"_s(phi_(t,s)) quad "(normalized)", quad m_(t,s) = exp(phi_(t,s)) quad "(raw)"
        w_(t,s) = S_(t,s) / (sum_(s') S_(t,s')) = "softmax"_s(phi_(t,s) + log(-log(1 - u_(t,s))) / k)
        u_(t,s) ~ "Uniform"(0, 1)
        f(alpha) = log k - gamma - 1 + alpha (gamma/k + log Gamma(1 + 1/k)) + log Gamma(alpha) - alpha log alpha + alpha

    Args:
        k: Shape, positive; a larger one makes less noise. Defaults to 10.0.
        parameterization: `"normalized"` or `"raw"`. Defaults to `"normalized"`.
        kl_estimator: `"analytic"`, or `"sampled"` for log q(S) - log p(S) at the draw (the paper's ablation), which has
            the same mean and more variance; a call that does not draw is always analytic. Defaults to `"analytic"`.
        kl_of: `"draws"` for the KL of S, or `"weights"` for the KL on the simplex. Defaults to `"draws"`.

    Raises:
        ValueError: If `k` is not positive, a name is unknown, or an argument would change nothing.

    Example:

    >>> layer = keras_vattn.Attention(alignment=keras_vattn.Weibull(k=50.0), prior="contextual")
    >>> layer(keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 4)), training=True).shape, len(layer.losses)
    (TensorShape([2, 3, 4]), 1)
    """

    is_stochastic = True
    priors = {"fixed": partial(GammaPrior, 1.0), "contextual": GammaPrior}

    def __init__(self, k=10.0, parameterization="normalized", kl_estimator="analytic", kl_of="draws"):
        self.k = positive_number("k", k)
        self.parameterization = one_of("parameterization", parameterization, PARAMETERIZATIONS)
        self.kl_estimator = one_of("kl_estimator", kl_estimator, KL_ESTIMATORS)
        self.kl_of = one_of("kl_of", kl_of, KL_OF)
        if kl_of == "weights":
            refuse_unread(self, "kl_of", parameterization="normalized", kl_estimator="analytic")

    def noise(self, shape, seed):
        """Return log(-log(1 - u)) / k: a loop would make it of uniforms in every step, forward and back."""
        return log_noise(self.k, shape, seed)

    def perturb(self, logits, noise, keys):
        return logits if noise is None else logits + noise

    def posterior(self, logits, keys):
        if self.parameterization == "normalized":
            return distributions.Weibull(self.k, keys.log_softmax(logits), keys, sums_to_one=True)
        return distributions.Weibull(self.k, keys.zero_masked(logits), keys)

    def divergence_floor(self, prior, p, logits, keys):
        if not isinstance(p, distributions.Gamma):
            return None

        def row_floor(num_keys, log_total):
            # For a given sum of alpha over the keys both terms of the KL are least where all keys have the same alpha
            # and the same E[S]; a normalised E[S] sums to one, whatever the prior's mean sums to.
            count, log_total = ops.maximum(num_keys, 1.0), ops.cast(log_total, "float32")
            floor = count * divergence_at_equal_means(self.k, log_total + p.log_rate - ops.log(count))
            if self.parameterization == "normalized":
                floor = floor + scaled_exponential_gap(log_total + p.log_rate, -log_total)
            return ops.where(num_keys > 0.0, floor, 0.0)

        if p.log_total is None:
            return row_floor(keys.count(logits), ops.log(ops.maximum(keys.sum(ops.exp(p.log_mean())), 1e-37)))
        return keys.of_count(lambda count: row_floor(count, p.log_total(ops.maximum(count, 1.0))), logits)

    def get_config(self):
        return {
            "k": self.k,
            "parameterization": self.parameterization,
            "kl_estimator": self.kl_estimator,
            "kl_of": self.kl_of,
        }
