import dataclasses
import typing

import keras

from keras_vattn.support.validation import boolean, fraction, positive_integer, positive_number

# The first estimator of each objective is the one it has by default.
LEGAL = {
    "soft": ("expected",),
    "marginal": ("enumerate", "top_k"),
    "elbo": ("sample", "enumerate", "gumbel"),
    "hard": ("sample", "enumerate"),
    "importance_weighted": ("sample",),
    "wake_sleep": ("sample",),
}
BASELINES = ("soft", "moving_average")


class Pair(typing.NamedTuple):
    """An objective and how it is estimated."""

    objective: str
    estimator: str

    @property
    def needs_posterior(self):
        return self.objective in ("elbo", "importance_weighted", "wake_sleep")

    @property
    def draws(self):
        return self.estimator in ("sample", "gumbel")

    @property
    def takes_baseline(self):
        return self.estimator == "sample" and self.objective in ("elbo", "hard")

    def __str__(self):
        return f"{self.objective}/{self.estimator}"


# What an evaluation computes where nothing else is asked for: the bound without noise, or what the draws estimate.
AT_INFERENCE = {
    "elbo": Pair("elbo", "enumerate"),
    "hard": Pair("hard", "enumerate"),
    "importance_weighted": Pair("marginal", "enumerate"),
    "wake_sleep": Pair("marginal", "enumerate"),
}


@keras.saving.register_keras_serializable(package="keras_vattn")
@dataclasses.dataclass(frozen=True)
class LatentObjective:
    """The objective of a model with a latent alignment and its estimator: made once, for both ends of the model.

    `keras_vattn.CategoricalAttention` makes the candidates that the objective needs, and
    `keras_vattn.LatentLogLikelihood` turns their likelihoods into one value for each word. z is the alignment, one
    source position; the scores give p(z), and an inference network that sees the target gives q(z) (Deng et al. 2018).

    The objectives and their estimators, the default first. The formulas are the value of a word y, in nats.

    - `"soft"`: `"expected"`. The usual attention.
    - `"marginal"`: `"enumerate"`, `"top_k"`. The exact likelihood (section 2.1). `"top_k"` is K-max: the largest p(z),
      renormalised (section 4).
    - `"elbo"`: `"sample"`, `"enumerate"`, `"gumbel"`. The attention adds KL(q || p) to the loss (section 3).
    - `"hard"`: `"sample"`, `"enumerate"`. The same with q = p, and no KL (section 2.2).
    - `"importance_weighted"`: `"sample"`. For K draws from q (Burda et al. 2016), with the gradient of Mnih and Rezende
      2016. No KL is added.
    - `"wake_sleep"`: `"sample"`, at least 2 draws. The same value with the gradient of Ba et al. 2015. No KL is added.

    Evaluation has no noise: `"elbo"` and `"hard"` sum over all z, `"importance_weighted"` and `"wake_sleep"` become the
    marginal that they estimate. `inference` asks for another pair, for instance `"marginal/top_k"` of a model trained
    with `"soft"`. Where a pair needs posterior logits and none are passed, the marginal takes its place. A marginal at
    evaluation is over all keys, or over the `top_k` most probable ones where `top_k` is set. Under
    `keras_vattn.posterior_draws` an objective that draws in training draws at evaluation too, from p where no posterior
    logits are passed.

    Formula:
        log p(y | bb E_(z ~ p)["value"_z]) quad ("soft")
        log (sum_z p(z) p(y | z)) quad ("marginal")
        bb E_(z ~ q)[log p(y | z)] quad ("elbo")
        bb E_(z ~ p)[log p(y | z)] quad ("hard")
        log (1/K sum_k (p(z_k) p(y | z_k)) / (q(z_k))), quad z_k ~ q quad ("importance_weighted, wake_sleep")

    Args:
        objective: As above, or both words in one: `"elbo/enumerate"`. Defaults to `"elbo"`.
        estimator: As above. Defaults to `None`, the first one of the objective.
        num_samples: Number of draws of `"sample"`. Defaults to 1.
        top_k: Number of keys of K-max, in `"top_k"` and in the marginal of a prediction; `None` for all. Defaults to
            `None`.
        baseline: What the score-function gradient of `"elbo/sample"` and `"hard/sample"` subtracts from log p(y given
            z): `"soft"`, the value of the `"soft"` objective (section 3, eq. 1); `"moving_average"` of the values in
            training; `None`; or a function of the log-likelihoods (B, T, K) whose entry k does not depend on the k-th
            log-likelihood. Defaults to `"soft"`.
        baseline_decay: Decay per training call of `"moving_average"`. Defaults to 0.99.
        tau: Temperature of `"gumbel"`. Defaults to 0.1, as in the commands of the paper's code.
        detach_prior: Whether to stop the gradient of the KL at p. Defaults to `False`, as in the paper.
        inference: Pair at evaluation, such as `"marginal/enumerate"`, or `None`. Defaults to `None`.

    Raises:
        ValueError: For a pair outside the table, and numbers out of range.

    Example:

    >>> objective = keras_vattn.LatentObjective("elbo", "sample", inference="marginal/top_k", top_k=5)
    >>> keras_vattn.LatentObjective("soft/expected") == keras_vattn.LatentObjective("soft")
    True
    """

    objective: str = "elbo"
    estimator: str | None = None
    num_samples: int = 1
    top_k: int | None = None
    baseline: object = "soft"
    baseline_decay: float = 0.99
    tau: float = 0.1
    detach_prior: bool = False
    inference: str | None = None

    def __post_init__(self):
        pair = _legal_pair("objective", self.objective, self.estimator)
        at_inference = None if self.inference is None else _legal_pair("inference", self.inference)
        baseline = self.baseline
        if isinstance(baseline, dict):
            baseline = keras.saving.deserialize_keras_object(baseline)
        if baseline is not None and baseline not in BASELINES and not callable(baseline):
            raise ValueError(
                f'`baseline` must be "soft", "moving_average", None or a function. Received: baseline={baseline!r}'
            )
        validated = {
            "num_samples": positive_integer("num_samples", self.num_samples),
            "top_k": positive_integer("top_k", self.top_k, optional=True),
            "tau": positive_number("tau", self.tau),
            "baseline_decay": fraction("baseline_decay", self.baseline_decay),
            "detach_prior": boolean("detach_prior", self.detach_prior),
        }
        pairs = [pair] if at_inference is None else [pair, at_inference]
        if self.top_k is None and any(x.estimator == "top_k" for x in pairs):
            raise ValueError('The estimator "top_k" needs the number of keys. Received: top_k=None')
        if self.num_samples < 2 and any(x.objective == "wake_sleep" for x in pairs):
            raise ValueError(
                "wake_sleep weighs draws against each other and needs at least 2 of them. "
                f"Received: num_samples={self.num_samples}"
            )
        if pair.estimator == "gumbel" and self.num_samples != 1:
            raise ValueError(f"elbo/gumbel takes one relaxed draw. Received: num_samples={self.num_samples}")
        # What was given in another form is kept in one, so that equal objectives are equal.
        names = {
            "objective": pair.objective,
            "estimator": pair.estimator,
            "baseline": baseline,
            "inference": None if at_inference is None else str(at_inference),
        }
        for name, value in {**names, **validated}.items():
            object.__setattr__(self, name, value)

    @property
    def in_training(self):
        """The pair of training."""
        return Pair(self.objective, self.estimator)

    @property
    def at_inference(self):
        """The pair of evaluation with posterior logits."""
        if self.inference is not None:
            return Pair(*self.inference.split("/"))
        pair = AT_INFERENCE.get(self.objective, self.in_training)
        return self._marginal if pair.objective == "marginal" else pair

    @property
    def _marginal(self):
        return Pair("marginal", "enumerate" if self.top_k is None else "top_k")

    @property
    def uses_posterior(self):
        """Whether posterior logits have a meaning, in training or at evaluation."""
        return self.in_training.needs_posterior or self.at_inference.needs_posterior

    @property
    def draws(self):
        """Whether a call may draw."""
        return self.in_training.draws or self.at_inference.draws

    def pair(self, training, marked, has_posterior):
        """Return the pair that a call computes; both layers ask here.

        Args:
            training: The call's `training`.
            marked: Whether `keras_vattn.posterior_draws` asks for draws at inference.
            has_posterior: Whether the call has posterior logits; without them draws come from p.

        Raises:
            ValueError: If training needs posterior logits and has none.
        """
        if marked and not training and self.in_training.draws:
            return self.in_training
        pair = self.in_training if training else self.at_inference
        if has_posterior or not pair.needs_posterior:
            return pair
        if training:
            raise ValueError(
                f"{pair} needs posterior logits in training; without them only a prediction is possible. "
                "Received: posterior_logits=None, training=True"
            )
        return self._marginal

    def has_baseline_entry(self, pair, training):
        """Return whether the candidates of a pair end with the entry of the soft baseline: in training only."""
        return bool(training) and pair.takes_baseline and self.baseline == "soft"

    def num_candidates(self, pair, num_keys):
        """Return how many candidates a pair makes of this many keys, without the entry of the soft baseline; `None`
        where the number of keys is not known."""
        if pair.estimator == "enumerate":
            return num_keys
        if pair.estimator == "top_k":
            return None if num_keys is None else min(self.top_k, num_keys)
        return self.num_samples if pair.estimator == "sample" else 1

    def is_equivalent(self, other):
        """Return whether another objective is the same, including a baseline function of the same code."""
        return self == other or self.get_config() == other.get_config()

    def get_config(self):
        config = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if callable(self.baseline):
            config["baseline"] = keras.saving.serialize_keras_object(self.baseline)
        return config

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def resolve_objective(identifier):
    """Return the `LatentObjective` that a pair of words ("elbo/sample"), a configuration or an instance stands for."""
    resolved = identifier
    if isinstance(identifier, dict):
        resolved = keras.saving.deserialize_keras_object(identifier)
    elif isinstance(identifier, str):
        resolved = LatentObjective(identifier)
    if not isinstance(resolved, LatentObjective):
        raise ValueError(
            '`objective` must be a keras_vattn.LatentObjective or words such as "elbo/sample". '
            f"Received: objective={identifier!r}"
        )
    return resolved


def _legal_pair(name, objective, estimator=None):
    text = objective if estimator is None else f"{objective}/{estimator}"
    words = text.split("/") if isinstance(text, str) else ()
    if len(words) == 1 and words[0] in LEGAL:
        return Pair(words[0], LEGAL[words[0]][0])
    if len(words) == 2 and words[1] in LEGAL.get(words[0], ()):
        return Pair(*words)
    legal = ", ".join(str(Pair(*words)) for words in ((x, y) for x, estimators in LEGAL.items() for y in estimators))
    raise ValueError(f"`{name}` must be one of {legal}. Received: {name}={text!r}")
