"""Options of stochastic attention weights, and the alignments and priors for them. Keras is imported when used."""

import dataclasses
from typing import Literal

from applications.common.errors import InputError
from applications.common.options import NotNegative, NotNegativeFloat, Positive, PositiveFloat


@dataclasses.dataclass
class Forms:
    """Choices in which paper and published code differ, and an ablation of section 4.3."""

    parameterization: Literal["normalized", "raw"] = "normalized"
    """Mean of a weight before normalization; normalized: softmax(scores), as in the published code; raw: exp(score)."""
    kl_estimator: Literal["analytic", "sampled"] = "analytic"
    """analytic: the KL in closed form; sampled: log q - log p at the draw, an ablation."""


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
        """Return the alignment with this name, "weibull", "lognormal", "dirichlet" or "gumbel_softmax"."""
        import keras_vattn

        return {
            "weibull": lambda: keras_vattn.Weibull(self.weibull_k, self.parameterization, self.kl_estimator),
            "lognormal": lambda: keras_vattn.LogNormal(self.lognormal_sigma, self.parameterization, self.kl_estimator),
            "dirichlet": keras_vattn.Dirichlet,
            "gumbel_softmax": lambda: keras_vattn.GumbelSoftmax(tau),
        }[name]()

    def prior(self, alignment, kind="contextual", alpha=1.0, **contextual):
        """Return the prior, "contextual" or "fixed", of the alignment "weibull", "lognormal" or "dirichlet"; other
        keyword arguments go to a contextual prior."""
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
    """Factor on the KL of stochastic weights."""
    annealing_rate: NotNegativeFloat = 1.0
    """rho: the factor on the KL grows as sigmoid(rho step); 0 for the full KL from the start."""

    def annealing(self):
        """Return the annealing of the KL, or `None`."""
        import keras_vattn

        return keras_vattn.LogisticAnnealing(0.0, self.annealing_rate) if self.annealing_rate else None


@dataclasses.dataclass
class PosteriorOptions:
    """Inference networks (Deng et al. 2018)"""

    tau: PositiveFloat = 0.5
    """Temperature of the Gumbel-softmax."""
    relaxed: Literal["dirichlet", "lognormal", "gumbel_softmax"] = "dirichlet"
    """Distribution of the attention weights in the model `relaxed`."""
    warm_start: NotNegative = 0
    """First steps of the model `relaxed`, which draw from p without a KL (algorithm 2 of Deng et al. 2018). They do not
    train q, and their validation losses are ignored."""
    posterior_steps: NotNegative = 0
    """Steps after a warm start that train only the inference network, so that an untrained q does not pull a trained p
    towards itself (--start-from). Their validation losses are ignored."""
    annealing_steps: NotNegative = 0
    """Steps over which the factor on the KL of models with a posterior grows to 1; 0 for the full KL from the start,
    as in the paper."""

    def annealing_of_posterior(self):
        """Return the annealing of the KL of a model with a posterior, or `None`."""
        import keras_vattn

        return keras_vattn.LinearAnnealing(self.annealing_steps) if self.annealing_steps else None

    def check_steps(self, first, max_steps):
        """Raise `InputError` if the run ends before all weights of a model with a posterior are trained. The first
        `first` steps belong to the warm start, or to the run that this one starts from."""
        early = first + self.posterior_steps
        if max_steps is not None and max_steps <= early:
            raise InputError(
                f"--warm-start, --posterior-steps: must be fewer than the {max_steps} steps of the run, so that all "
                f"weights are trained. Received: {early}"
            )


@dataclasses.dataclass
class PublishedOptions(BayesianOptions):
    """Attention; none for the paper's value for the model"""

    weibull_k: PositiveFloat | None = None
    lognormal_sigma: PositiveFloat | None = None
    prior_beta: PositiveFloat | None = None
    prior_sigma: PositiveFloat | None = None
    prior_hidden_units: Positive = 10
    kl_weight: NotNegativeFloat = 1.0
    """Factor on the KL."""
    annealing_rate: NotNegativeFloat | None = None

    def with_published(self, published):
        """Return `BayesianOptions`: the options that are set, then the dictionary of values published for the model."""
        options = {name: value for name, value in vars(self).items() if value is not None}
        values = {"annealing_rate": 0.0, **published, **options}
        names = [field.name for field in dataclasses.fields(BayesianOptions)]
        return BayesianOptions(**{name: values[name] for name in names if name in values})
