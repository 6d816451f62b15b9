import dataclasses
import typing

import keras

from keras_vattn.support.validation import boolean, fraction, positive_integer, positive_number

# The first estimator is the default.
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
    """An objective and an estimator of the objective."""

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


# Evaluation uses these pairs by default, because these estimators need no samples.
AT_INFERENCE = {
    "elbo": Pair("elbo", "enumerate"),
    "hard": Pair("hard", "enumerate"),
    "importance_weighted": Pair("marginal", "enumerate"),
    "wake_sleep": Pair("marginal", "enumerate"),
}


@keras.saving.register_keras_serializable(package="keras_vattn")
@dataclasses.dataclass(frozen=True)
class LatentObjective:
    """Training objective and gradient estimator of a model whose alignment is a latent variable.

    Pass the same objective to two layers. `keras_vattn.CategoricalAttention` returns the candidates that the objective
    needs. `keras_vattn.LatentLogLikelihood` combines the likelihoods of a word into one value.

    The alignment z is one source position. The scores define the prior p(z). An inference network that sees the target
    defines the posterior q(z) (Deng et al. 2018). The formulas give the value of a word y in nats. The list shows the
    estimators of each objective, the default first:

    - `"soft"`: `"expected"`. The usual soft attention.
    - `"marginal"`: `"enumerate"`, `"top_k"`. The exact likelihood (section 2.1). `"top_k"` uses only the K largest
      p(z), renormalised (K-max, section 4).
    - `"elbo"`: `"sample"`, `"enumerate"`, `"gumbel"`. The attention adds KL(q || p) to the loss (section 3).
    - `"hard"`: `"sample"`, `"enumerate"`. Like `"elbo"`, with q = p and without KL (section 2.2).
    - `"importance_weighted"`: `"sample"`. The bound from K samples of q (Burda et al. 2016), with the gradient of Mnih
      and Rezende 2016. No KL is added.
    - `"wake_sleep"`: `"sample"`, at least 2 samples. The bound of `"importance_weighted"`, with the gradient of Ba et
      al. 2015. No KL is added.

    Evaluation uses no noise by default. `"elbo"` and `"hard"` sum over all z. `"importance_weighted"`, `"wake_sleep"`
    and calls without the posterior logits that the objective needs use `"marginal"`. At evaluation, `"marginal"` sums
    over all keys, or over the `top_k` most probable keys if `top_k` is set. `inference` selects another objective, for
    instance `"marginal/top_k"` for a model trained with `"soft"`.

    Under `keras_vattn.posterior_draws`, an objective that samples in training also samples at evaluation. A call
    without posterior logits samples from p.

    Formula:
        log p(y | bb E_(z ~ p)["value"_z]) quad ("soft")
        log (sum_z p(z) p(y | z)) quad ("marginal")
        bb E_(z ~ q)[log p(y | z)] quad ("elbo")
        bb E_(z ~ p)[log p(y | z)] quad ("hard")
        log (1/K sum_k (p(z_k) p(y | z_k)) / (q(z_k))), quad z_k ~ q quad ("importance_weighted, wake_sleep")

    Args:
        objective: An objective, or an objective and its estimator, as in `"elbo/enumerate"`. Defaults to `"elbo"`.
        estimator: An estimator of the objective. Defaults to `None`, its first estimator.
        num_samples: Number of samples K of `"sample"`. Defaults to 1.
        top_k: Number of most probable keys in `"top_k"` and in the marginal at evaluation; `None` for all keys.
            Defaults to `None`.
        baseline: The value that the gradient of `"elbo/sample"` and `"hard/sample"` subtracts from log p(y | z_k).
            `"soft"`: the value of the `"soft"` objective (section 3, eq. 1). `"moving_average"`: the average value in
            training. `None`: 0. A function receives the log-likelihoods (B, T, K); its k-th result must not depend on
            the k-th log-likelihood. Defaults to `"soft"`.
        baseline_decay: Decay factor of `"moving_average"`, applied in every training call. Defaults to 0.99.
        tau: Temperature of `"gumbel"`. Defaults to 0.1, as in the commands in the code of Deng et al. 2018.
        detach_prior: Whether to treat p as a constant in the KL. Defaults to `False`, as in Deng et al. 2018.
        inference: Objective and estimator at evaluation, such as `"marginal/top_k"`. Defaults to `None`, which uses no
            noise.

    Raises:
        ValueError: If the objective or the estimator is not in the list, or if a number is out of range.

    Example:

    >>> objective = keras_vattn.LatentObjective(inference="marginal/top_k", top_k=5)
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
            raise ValueError('The estimator "top_k" needs the argument `top_k`. Received: top_k=None')
        if self.num_samples < 2 and any(x.objective == "wake_sleep" for x in pairs):
            raise ValueError(
                "wake_sleep compares samples and needs `num_samples` of at least 2. "
                f"Received: num_samples={self.num_samples}"
            )
        if pair.estimator == "gumbel" and self.num_samples != 1:
            raise ValueError(f"elbo/gumbel needs `num_samples=1`. Received: num_samples={self.num_samples}")
        # Without normalized arguments, "soft" and "soft/expected" would not be equal.
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
        """The objective and estimator that training uses."""
        return Pair(self.objective, self.estimator)

    @property
    def at_inference(self):
        """The objective and estimator that evaluation uses if posterior logits are passed."""
        if self.inference is not None:
            return Pair(*self.inference.split("/"))
        pair = AT_INFERENCE.get(self.objective, self.in_training)
        return self._marginal if pair.objective == "marginal" else pair

    @property
    def _marginal(self):
        return Pair("marginal", "enumerate" if self.top_k is None else "top_k")

    @property
    def uses_posterior(self):
        """Whether training or evaluation uses posterior logits."""
        return self.in_training.needs_posterior or self.at_inference.needs_posterior

    @property
    def draws(self):
        """Whether a call may sample positions or noise."""
        return self.in_training.draws or self.at_inference.draws

    def pair(self, training, marked, has_posterior):
        """Return the objective and the estimator that a call of a layer uses.

        Args:
            training: The argument `training` of the call.
            marked: Whether `keras_vattn.posterior_draws` requests samples at inference.
            has_posterior: Whether the call has posterior logits.

        Raises:
            ValueError: If training needs posterior logits and none are passed.
        """
        if marked and not training and self.in_training.draws:
            return self.in_training
        pair = self.in_training if training else self.at_inference
        if has_posterior or not pair.needs_posterior:
            return pair
        if training:
            raise ValueError(
                f"{pair} needs posterior logits in training. Predictions do not need them. "
                "Received: posterior_logits=None, training=True"
            )
        return self._marginal

    def has_baseline_entry(self, pair, training):
        """Return whether the last candidate is the soft baseline."""
        return bool(training) and pair.takes_baseline and self.baseline == "soft"

    def num_candidates(self, pair, num_keys):
        """Return the number of candidates without the soft baseline, or `None` if the number is unknown."""
        if pair.estimator == "enumerate":
            return num_keys
        if pair.estimator == "top_k":
            return None if num_keys is None else min(self.top_k, num_keys)
        return self.num_samples if pair.estimator == "sample" else 1

    def is_equivalent(self, other):
        """Return whether two objectives are equal. Baseline functions are equal if their configs are equal."""
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
    """Return a `LatentObjective` from a name such as "elbo/sample", a config or an instance."""
    resolved = identifier
    if isinstance(identifier, dict):
        resolved = keras.saving.deserialize_keras_object(identifier)
    elif isinstance(identifier, str):
        resolved = LatentObjective(identifier)
    if not isinstance(resolved, LatentObjective):
        raise ValueError(
            '`objective` must be a keras_vattn.LatentObjective or a name such as "elbo/sample". '
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
