"""Defines the options for stochastic attention weights. This module imports Keras only inside methods."""

import dataclasses
from typing import Literal

from applications.common.errors import InputError
from applications.common.options import NotNegative, NotNegativeFloat, Positive, PositiveFloat


@dataclasses.dataclass
class Forms:
    """Options in which the paper and the code of Fan et al. 2020 differ, or which an ablation varies (section 4.3)."""

    parameterization: Literal["normalized", "raw"] = "normalized"
    """Mean of an unnormalized weight. normalized: softmax(scores), as in the authors' code; raw: exp(score)."""
    kl_estimator: Literal["analytic", "sampled"] = "analytic"
    """analytic: the KL in closed form; sampled: log q - log p of the sampled weights, an ablation."""


@dataclasses.dataclass
class DrawnOptions(Forms):
    """Stochastic weights (Fan et al. 2020)"""

    weibull_k: PositiveFloat = 5.0
    """Shape of the Weibull weights; a larger shape means less variance."""
    lognormal_sigma: PositiveFloat = 0.3
    """Standard deviation of the logarithm of lognormal weights."""
    prior_beta: PositiveFloat = 1e-6
    """Rate of the Gamma prior of Weibull weights."""
    prior_sigma: PositiveFloat = 1.0
    """Standard deviation of the prior of lognormal weights."""
    prior_hidden_units: Positive = 5
    """Hidden units of the network that computes the prior from the keys."""

    def alignment(self, name, tau=1.0):
        """Return a `keras_vattn` alignment by name: "weibull", "lognormal", "dirichlet" or "gumbel_softmax"."""
        import keras_vattn

        return {
            "weibull": lambda: keras_vattn.Weibull(self.weibull_k, self.parameterization, self.kl_estimator),
            "lognormal": lambda: keras_vattn.LogNormal(self.lognormal_sigma, self.parameterization, self.kl_estimator),
            "dirichlet": keras_vattn.Dirichlet,
            "gumbel_softmax": lambda: keras_vattn.GumbelSoftmax(tau),
        }[name]()

    def prior(self, alignment, kind="contextual", alpha=1.0, **contextual):
        """Return the prior for the alignment "weibull", "lognormal" or "dirichlet".
        If `kind` is "fixed", a lognormal prior has mean 0, and other priors have concentration `alpha`. Otherwise, a
        network computes the prior from the keys."""
        import keras_vattn

        fixed = kind == "fixed"
        options = {} if fixed else {"hidden_units": self.prior_hidden_units, **contextual}
        if alignment == "lognormal":
            return keras_vattn.LogNormalPrior(0.0 if fixed else None, self.prior_sigma, **options, name="prior")
        concentration = alpha if fixed else None
        if alignment == "dirichlet":
            return keras_vattn.DirichletPrior(concentration, **options, name="prior")
        return keras_vattn.GammaPrior(concentration, self.prior_beta, **options, name="prior")


@dataclasses.dataclass
class BayesianOptions(DrawnOptions):
    """Stochastic weights (Fan et al. 2020)"""

    kl_weight: NotNegativeFloat = 1.0
    """Factor on the KL of the attention weights."""
    annealing_rate: NotNegativeFloat = 1.0
    """rho: the factor on the KL grows as sigmoid(rho * step); 0 for the full KL from the first step."""

    def annealing(self):
        """Return the schedule of the KL weight; `None` for the full KL from the first step."""
        import keras_vattn

        return keras_vattn.LogisticAnnealing(0.0, self.annealing_rate) if self.annealing_rate else None


@dataclasses.dataclass
class PosteriorOptions:
    """Inference networks (Deng et al. 2018)"""

    tau: PositiveFloat = 0.5
    """Temperature of the Gumbel-softmax distribution."""
    relaxed: Literal["dirichlet", "lognormal", "gumbel_softmax"] = "dirichlet"
    """Distribution of the attention weights in the model `relaxed`."""
    warm_start: NotNegative = 0
    """Number of initial steps during which `relaxed` samples from the prior p, adds no KL and does not train q (Deng et
    al. 2018, algorithm 2). Validation losses of these steps are ignored."""
    posterior_steps: NotNegative = 0
    """After a warm start or --start-from: number of steps that train only the inference network q. Without these steps,
    an untrained q would pull the trained prior towards it. Validation losses of these steps are ignored."""
    annealing_steps: NotNegative = 0
    """For models with a posterior: steps over which the factor on the KL grows to 1; 0 for the full KL from the first
    step, as in Deng et al. 2018."""

    def annealing_of_posterior(self):
        """Return the KL schedule of models with a posterior; `None` for the full KL from the first step."""
        import keras_vattn

        return keras_vattn.LinearAnnealing(self.annealing_steps) if self.annealing_steps else None

    def check_steps(self, first, max_steps):
        """Raise `InputError` if no step of the run trains all weights.
        `first`: number of steps before the posterior steps, in a warm start or in the run that `--start-from` names."""
        early = first + self.posterior_steps
        if max_steps is not None and max_steps <= early:
            raise InputError(
                "--warm-start and --posterior-steps: the steps that do not train all weights must be fewer than the "
                f"{max_steps} steps of the run. Received: {early}"
            )


@dataclasses.dataclass
class PublishedOptions(BayesianOptions):
    """Attention; the default none means the paper's value"""

    weibull_k: PositiveFloat | None = None
    lognormal_sigma: PositiveFloat | None = None
    prior_beta: PositiveFloat | None = None
    prior_sigma: PositiveFloat | None = None
    prior_hidden_units: Positive = 10
    kl_weight: NotNegativeFloat = 1.0
    """Factor on the KL."""
    annealing_rate: NotNegativeFloat | None = None

    def with_published(self, published):
        """Return `BayesianOptions`, in which `published` replaces options that are `None`."""
        options = {name: value for name, value in vars(self).items() if value is not None}
        values = {"annealing_rate": 0.0, **published, **options}
        names = [field.name for field in dataclasses.fields(BayesianOptions)]
        return BayesianOptions(**{name: values[name] for name in names if name in values})
