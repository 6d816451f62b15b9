from functools import partial

import keras
from keras import ops

from keras_vattn import distributions, random
from keras_vattn.alignments.alignment import Alignment
from keras_vattn.alignments.priors import DirichletPrior
from keras_vattn.support.special import soft_clamp
from keras_vattn.support.validation import number


@keras.saving.register_keras_serializable(package="keras_vattn")
class Dirichlet(Alignment):
    """Dirichlet alignment, the relaxed latent alignment of Deng et al. 2018, section 4.

    Masked positions are excluded from the distribution. Inference uses the mean of the weights. Samples of the weights
    are normalised Gamma draws, which stay finite for small alpha. The draws have implicit gradients with respect to the
    concentrations alpha (Figurnov et al. 2018).

    The logits phi are log alpha. A smooth clamp limits log alpha to [min_log_concentration, max_log_concentration].

    The KL between two Dirichlets q and p has a closed form. The prior names "fixed" and "contextual" select a
    `DirichletPrior`, whose log alpha has the same limits. With posterior logits, q uses the posterior logits and p uses
    the scores.

    Formula:
        w_t ~ "Dirichlet"(alpha_t), quad alpha_(t,s) = exp("clamp"(phi_(t,s)))
        bb E[w_(t,s)] = alpha_(t,s) / (sum_(s') alpha_(t,s'))
        w_(t,s) = S_(t,s) / (sum_(s') S_(t,s')), quad log S_(t,s) = log G_(t,s) + log(u_(t,s)) / alpha_(t,s)
        G_(t,s) ~ "Gamma"(alpha_(t,s) + 1, 1), quad u_(t,s) ~ "Uniform"(0, 1)

    Args:
        min_log_concentration: Lower bound of log alpha. Defaults to -10.0.
        max_log_concentration: Upper bound of log alpha. Defaults to 10.0.

    Raises:
        ValueError: If the bounds are not finite or not in increasing order.

    Example:

    >>> prior = keras_vattn.DirichletPrior(alpha=0.5)
    >>> layer = keras_vattn.Attention(alignment="dirichlet", prior=prior)
    >>> query, value = keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 4))
    >>> layer(query, value, training=True).shape, len(layer.losses)
    (TensorShape([2, 3, 4]), 1)
    """

    is_stochastic = True
    kl_of = "weights"
    priors = {"fixed": partial(DirichletPrior, 1.0), "contextual": DirichletPrior}

    def __init__(self, min_log_concentration=-10.0, max_log_concentration=10.0):
        self.min_log_concentration = number("min_log_concentration", min_log_concentration)
        self.max_log_concentration = number("max_log_concentration", max_log_concentration)
        if not self.min_log_concentration < self.max_log_concentration:
            raise ValueError(
                "`min_log_concentration` must be below `max_log_concentration`. Received: "
                f"min_log_concentration={min_log_concentration}, max_log_concentration={max_log_concentration}"
            )

    def noise(self, shape, seed):
        return {
            "uniform": random.uniform(shape, random.fold_in(seed, 0)),
            "gamma": random.gamma_noise(shape, random.fold_in(seed, 1)),
        }

    def perturb(self, logits, noise, keys):
        log_concentration = self._clamp(keys.zero_masked(logits))
        if noise is None:
            return log_concentration
        concentration = ops.exp(log_concentration)
        return random.log_gamma(concentration + 1.0, noise["gamma"]) + ops.log(noise["uniform"]) / concentration

    def posterior(self, logits, keys):
        # Masked logits may be NaN.
        return distributions.Dirichlet(ops.exp(self._clamp(keys.zero_masked(logits))), keys)

    def _clamp(self, logits):
        return soft_clamp(ops.cast(logits, "float32"), self.min_log_concentration, self.max_log_concentration)

    def get_config(self):
        return {
            "min_log_concentration": self.min_log_concentration,
            "max_log_concentration": self.max_log_concentration,
        }
