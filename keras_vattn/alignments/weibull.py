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
    """Weibull alignment of the Bayesian attention modules: the weights are normalised Weibull draws.

    See Fan et al. 2020, section 3.2. A Weibull draw S is normalised to give the weights. Inference uses softmax(phi) of
    the logits phi, which is the normalised E[S]. As the shape k grows, the draws approach softmax(phi). For k = 1 and
    softmax(phi) = (0.6, 0.1, 0.1, 0.1, 0.1), the mean of the first weight is only 0.51.

    The KL compares q and p, two distributions of S. It depends on the scale of E[S]:

    - `parameterization="normalized"` follows the code of Fan et al. 2020. E[S] sums to one, like the mean of a
      contextual prior with `scale="rate"`.
    - `"raw"` follows the formula in the paper. The KL grows with exp(phi), but only linearly above a phi of about 60.

    With a `GammaPrior`, as in Fan et al. 2020, p is a Gamma. `keras_vattn.distributions.Gamma` documents the KL. With a
    `FixedPrior`, a `ContextualPrior` or posterior logits, p is a Weibull with the k of q. The KL grows as
    exp(k (phi_q - phi_p)). With the default k, this KL is unusable if the logits of q and p differ by a few nats.

    With `kl_of="weights"`, q and p are distributions of the normalised weights, and q is a
    `keras_vattn.distributions.NormalizedWeibull`. For a Gamma prior, p is a Dirichlet. For a Weibull prior, p is a
    NormalizedWeibull, and the KL grows only linearly in k (phi_q - phi_p). For the same model, the ELBO is tighter than
    with `kl_of="draws"`, but no published system uses this KL. The KL is estimated at the draw, or averaged over 16
    fixed draws if the call does not draw. `parameterization` and `kl_estimator` must have their defaults.

    The KL of S to a Gamma never reaches 0. In the formula, f is the KL of one key if the means of q and p are equal,
    and gamma is Euler's constant. With a contextual prior, the KL of a query with n keys is at least n f(beta / n). For
    20 keys and the defaults, this floor is 3.9 nats per key. The log also shows the KL minus the floor.

    Formula:
        S_(t,s) ~ "Weibull"(k, lambda_(t,s)), quad lambda_(t,s) = m_(t,s) / (Gamma(1 + 1/k))
        bb E[S_(t,s)] = m_(t,s) = "softmax"_s(phi_(t,s)) quad "(normalized)", quad m_(t,s) = exp(phi_(t,s)) quad "(raw)"
        w_(t,s) = S_(t,s) / (sum_(s') S_(t,s')) = "softmax"_s(phi_(t,s) + log(-log(1 - u_(t,s))) / k)
        u_(t,s) ~ "Uniform"(0, 1)
        f(alpha) = log k - gamma - 1 + alpha (gamma/k + log Gamma(1 + 1/k)) + log Gamma(alpha) - alpha log alpha + alpha

    Args:
        k: Positive shape parameter; larger values give less noise. Defaults to 10.0.
        parameterization: `"normalized"` or `"raw"`. Defaults to `"normalized"`.
        kl_estimator: `"analytic"`, or `"sampled"` to estimate the KL as log q(S) - log p(S) at the draw, an ablation in
            Fan et al. 2020. The estimate is unbiased, but noisy. A call that does not draw uses the analytic KL.
            Defaults to `"analytic"`.
        kl_of: `"draws"` for the KL of S, or `"weights"` for the KL of the normalised weights. Defaults to `"draws"`.

    Raises:
        ValueError: If `k` is not positive, a string is not an option, or an argument would have no effect.

    Example:

    >>> alignment = keras_vattn.Weibull(k=50.0)
    >>> layer = keras_vattn.Attention(alignment=alignment, prior="contextual")
    >>> query, value = keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 4))
    >>> layer(query, value, training=True).shape, len(layer.losses)
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
        """Return log(-log(1 - u)) / k for uniform noise u."""
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
            # For a fixed sum of alpha, the KL is smallest if all keys have the same alpha and the same E[S].
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
