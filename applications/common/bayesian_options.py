"""Options of random attention weights, and the alignments and priors that they describe. Keras is imported late."""

import dataclasses
from typing import Literal

from applications.common.errors import InputError
from applications.common.options import NotNegative, NotNegativeFloat, Positive, PositiveFloat


@dataclasses.dataclass
class Forms:
    """Forms in which paper and published code differ, and an ablation of section 4.3."""

    parameterization: Literal["normalized", "raw"] = "normalized"
    """Mean of a weight before normalisation: the softmax of the scores, as in the published code, or raw: their exp."""
    kl_estimator: Literal["analytic", "sampled"] = "analytic"
    """The KL in closed form, or log q - log p at the draw, the ablation."""


@dataclasses.dataclass
class DrawnOptions(Forms):
    """Drawn weights (Fan et al. 2020)"""

    weibull_k: PositiveFloat = 5.0
    """Shape of the Weibull weights; the larger, the less they vary."""
    lognormal_sigma: PositiveFloat = 0.3
    """Standard deviation of the logarithm of lognormal weights."""
    prior_beta: PositiveFloat = 1e-6
    """Rate of the Gamma prior of Weibull weights."""
    prior_sigma: PositiveFloat = 1.0
    """Standard deviation of the prior of lognormal weights."""
    prior_hidden_units: Positive = 5
    """Width of the network that reads the prior off the keys."""

    def alignment(self, name, tau=1.0):
        """Return the alignment of that name, "weibull", "lognormal", "dirichlet" or "gumbel_softmax"."""
        import keras_vattn

        return {
            "weibull": lambda: keras_vattn.Weibull(self.weibull_k, self.parameterization, self.kl_estimator),
            "lognormal": lambda: keras_vattn.LogNormal(self.lognormal_sigma, self.parameterization, self.kl_estimator),
            "dirichlet": keras_vattn.Dirichlet,
            "gumbel_softmax": lambda: keras_vattn.GumbelSoftmax(tau),
        }[name]()

    def prior(self, alignment, kind="contextual", alpha=1.0, **contextual):
        """Return the prior, "contextual" or "fixed", of the "weibull", "lognormal" or "dirichlet" alignment; further
        arguments go to a contextual prior."""
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
    """Drawn weights (Fan et al. 2020)"""

    kl_weight: NotNegativeFloat = 1.0
    """Factor on the KL of drawn weights."""
    annealing_rate: NotNegativeFloat = 1.0
    """rho: the KL is weighed by sigmoid(rho step); 0 for its full weight from the start."""

    def annealing(self):
        """Return the annealing of the KL, or `None`."""
        import keras_vattn

        return keras_vattn.LogisticAnnealing(0.0, self.annealing_rate) if self.annealing_rate else None


@dataclasses.dataclass
class PosteriorOptions:
    """Inference networks (Deng et al. 2018)"""

    tau: PositiveFloat = 0.5
    """Temperature of draws of a Gumbel-softmax."""
    relaxed: Literal["dirichlet", "lognormal", "gumbel_softmax"] = "dirichlet"
    """Distribution of the model relaxed."""
    warm_start: NotNegative = 0
    """Steps of the model relaxed that draw from p without a KL (algorithm 2 of Deng et al. 2018). They do not train q,
    and their validation does not count."""
    posterior_steps: NotNegative = 0
    """Steps after a warm start that train the inference network alone, so that an untrained q does not pull a trained p
    towards itself (--start-from). Their validation does not count."""
    annealing_steps: NotNegative = 0
    """Steps over which the KL of models with a posterior grows to its full weight; 0, as in the paper, for the full
    weight from the start."""

    def annealing_of_posterior(self):
        """Return the annealing of the KL of a model with a posterior, or `None`."""
        import keras_vattn

        return keras_vattn.LinearAnnealing(self.annealing_steps) if self.annealing_steps else None

    def check_steps(self, first, max_steps):
        """Raise `InputError` if `max_steps` end before a model with a posterior is trained as a whole; its warm start,
        or the run that it starts from, takes the `first` steps."""
        early = first + self.posterior_steps
        if max_steps is not None and max_steps <= early:
            raise InputError(
                f"--warm-start, --posterior-steps: must be fewer than the {max_steps} steps of the run, or not all of "
                f"the model is trained. Received: {early}"
            )


@dataclasses.dataclass
class PublishedOptions(BayesianOptions):
    """Attention; none for the value that the paper has for the model"""

    weibull_k: PositiveFloat | None = None
    lognormal_sigma: PositiveFloat | None = None
    prior_beta: PositiveFloat | None = None
    prior_sigma: PositiveFloat | None = None
    prior_hidden_units: Positive = 10
    kl_weight: NotNegativeFloat = 1.0
    """Factor on the KL."""
    annealing_rate: NotNegativeFloat | None = None

    def with_published(self, published):
        """Return the `BayesianOptions` of a model that has published values, a dictionary."""
        options = {name: value for name, value in vars(self).items() if value is not None}
        values = {"annealing_rate": 0.0, **published, **options}
        names = [field.name for field in dataclasses.fields(BayesianOptions)]
        return BayesianOptions(**{name: values[name] for name in names if name in values})
