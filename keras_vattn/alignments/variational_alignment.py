import inspect
import math
from typing import NamedTuple

from keras import ops

from keras_vattn import random
from keras_vattn.alignments.keys import Keys
from keras_vattn.alignments.names import get, get_prior
from keras_vattn.alignments.priors import ContextualPrior
from keras_vattn.distributions.row_distribution import (
    RowDistribution,
    closed_divergence,
    drawn_divergence,
    mean_divergence,
)
from keras_vattn.support.validation import whole_number

LARGEST = 65504.0  # the largest float16
EVALUATION_DRAWS = 16  # draws for a KL without a closed form at inference
STATISTICS_ENTRIES = 2**24  # the most weights that `statistics` draws at once


class AlignmentInputs(NamedTuple):
    """The inputs of an alignment in one call.

    Attributes:
        logits: Attention logits, float32.
        keys: A `Keys`, which defines the valid keys of each query.
        log_psi: log Psi of a contextual prior, or `None`.
        posterior_logits: Finite float32 logits of an inference network, with the shape of `logits`, or `None`.
        psi_of_rows: Whether Psi sums to one over the keys of each query. `False`: over all nodes of a graph.
    """

    logits: object
    keys: Keys
    log_psi: object = None
    posterior_logits: object = None
    psi_of_rows: bool = True


class VariationalAlignment:
    """An alignment with its prior. It defines q and p, draws the noise and computes KL(q || p).

    Every attention layer contains a `VariationalAlignment`. With posterior logits, q = alignment(posterior_logits) and
    p = alignment(logits). Without posterior logits, q = alignment(logits), and the prior defines p. Without a prior,
    there is no KL. The noise of a call is a dictionary, which is empty if the call does not sample. `"alignment"`
    contains the random numbers. `"warm"`, used in training with a warm start, is `True` in calls that draw from p. All
    tensors of the noise have the leading axes of the logits, so that a loop over queries can slice them.

    Args:
        alignment: Name, class, config or instance of an `Alignment`.
        prior: `None`, or name, class, config or instance of a `Prior`.
        warm_start_steps: Number of initial training calls that draw from p, without a KL, even if posterior logits are
            passed. Defaults to 0.
        num_heads: Number of heads, or `None` for attention without heads. Defaults to `None`.
        per_head_prior: Whether to create a contextual prior with one network per head. Defaults to `False`.
        dtype: Dtype policy for a prior that is created from a name or class. Defaults to `None`.

    Raises:
        ValueError: If a name is unknown, the prior or warm start is not supported, or `prior.num_heads` is wrong.
    """

    def __init__(self, alignment, prior=None, warm_start_steps=0, num_heads=None, per_head_prior=False, dtype=None):
        self.alignment = get(alignment)
        options = {"num_heads": num_heads} if per_head_prior and _names_contextual(prior) else {}
        self.prior = get_prior(prior, self.alignment, dtype=dtype, name="prior", **options)
        self.warm_start_steps = whole_number("warm_start_steps", warm_start_steps)
        self.estimates_divergence = None
        if self.prior is not None and not self.is_stochastic:
            raise ValueError(
                'A prior needs a stochastic alignment, for instance "weibull". '
                f"Received: prior={prior!r}, alignment={type(self.alignment).__name__}"
            )
        if self.prior is not None and not self.alignment.takes_divergence:
            raise ValueError(f"Alignment {type(self.alignment).__name__} accepts no prior. Received: prior={prior!r}")
        if self.prior is not None and self.alignment.kl_of == "weights":
            self.prior.check_on_simplex()
        num_networks = None if self.prior is None else self.prior.num_heads
        if num_networks is not None and num_heads is None:
            raise ValueError(
                "A prior with one network for each head needs keras_vattn.MultiHeadAttention. "
                f"Received: prior.num_heads={num_networks}"
            )
        if num_networks not in (None, num_heads) or (per_head_prior and num_networks is None):
            raise ValueError(
                'For one network per head, pass prior="contextual" or a prior with the `num_heads` of the layer. '
                f"Received: prior={prior!r}, prior.num_heads={num_networks}, per_head_prior={per_head_prior}, "
                f"num_heads={num_heads}"
            )
        if self.warm_start_steps and (self.prior is not None or not self.is_stochastic):
            raise ValueError(
                "A warm start needs posterior logits, which require a stochastic alignment and prior=None. "
                f"Received: warm_start_steps={warm_start_steps}, alignment={type(self.alignment).__name__}, "
                f"prior={prior!r}"
            )

    @property
    def is_stochastic(self):
        """Whether the weights are random variables."""
        return self.alignment.is_stochastic

    def log_psi(self, key, keys, over=None):
        """Return log Psi, or `None` if there is no contextual prior. Psi depends only on the keys.

        Args:
            key: Input of a contextual prior, (..., S, Dk).
            keys: A `Keys`.
            over: `DenseKeys` with one row that contains all keys. If passed, Psi sums to one over all keys. Otherwise,
                Psi sums to one over each row of `keys`. Defaults to `None`.
        """
        if self.prior is None:
            return None
        log_psi = self.prior.log_psi(key, keys if over is None else over)
        if log_psi is not None and over is not None:
            log_psi = keys.per_entry(ops.squeeze(log_psi, -2))
        return log_psi

    def draw_noise(self, shape, seed, step, training=False):
        """Return the noise for a call that draws weights.

        Args:
            shape: Shape of the logits.
            seed: int32 tensor of shape (2,).
            step: Number of training calls so far.
            training: Argument `training` of the call.
        """
        noise = {}
        if training and self.warm_start_steps:
            noise["warm"] = ops.broadcast_to(step < self.warm_start_steps, (*shape[:-1], 1))
        drawn = self.alignment.noise(shape, random.fold_in(seed, 0))
        if drawn is not None:
            at_step = self.alignment.at_step(step)
            changing = {name: ops.broadcast_to(x, (*shape[:-1], 1)) for name, x in at_step.items()}
            noise["alignment"] = {**drawn, **changing} if changing else drawn
        return noise

    def logits_of_q(self, scored, noise):
        if scored.posterior_logits is None:
            return scored.logits
        q = scored.posterior_logits
        return ops.where(noise["warm"], scored.logits, q) if "warm" in noise else q

    def weights(self, scored, noise):
        """Return float32 weights drawn from q, or the weights without noise if `noise` is empty."""
        return self._weights(self.logits_of_q(scored, noise), noise.get("alignment"), scored.keys)

    def expected_weights(self, scored):
        """Return the weights without noise for `scored.logits`, even if there are posterior logits."""
        return self._weights(scored.logits, None, scored.keys)

    def _weights(self, logits, noise, keys):
        return self.alignment.normalize(self.alignment.perturb(logits, noise, keys), noise, keys)

    def divergence(self, scored, noise, step, seed, chunk_number=None):
        """Return KL(q || p) of each row in nats, float32, or `None` if p is not defined.

        Args:
            scored: An `AlignmentInputs`.
            noise: Result of `draw_noise`, or an empty dictionary if the call does not draw.
            step: Number of training calls so far.
            seed: Function that returns a seed of shape (2,). It is called only if the KL needs another draw.
            chunk_number: Index of the query chunk, a scalar integer, or `None`. Defaults to `None`.
        """
        keys = scored.keys
        if scored.posterior_logits is None and self.prior is None:
            return None
        if scored.logits.shape[-1] == 0:
            # Without this case, the gradient of the Weibull KL would divide by the number of keys, 0.
            return keys.sum(scored.logits)
        q, p = self.posterior_distribution(scored, step, noise), self.prior_distribution(scored, step)
        drawn, closed = noise.get("alignment"), None
        if drawn is None or self.alignment.kl_estimator == "analytic":
            closed = closed_divergence(q, p, keys)
        self.estimates_divergence = closed is None
        if closed is not None:
            return closed
        if drawn is not None:
            if hasattr(q, "log_draw") and hasattr(p, "log_density"):
                return drawn_divergence(q, p, keys, None, drawn)
            return drawn_divergence(q, p, keys, seed())
        # With random draws, two evaluations would return different KLs.
        fixed = random.as_seed(0)
        fixed = fixed if chunk_number is None else random.fold_in(fixed, chunk_number)
        return mean_divergence(q, p, keys, fixed, EVALUATION_DRAWS)

    def divergence_floor(self, scored):
        """Return the minimum of `divergence` for each query, or `None` if the minimum is 0 or unknown."""
        if self.prior is None or scored.posterior_logits is not None:
            return None
        p = self.prior_distribution(scored, 0)
        return self.alignment.divergence_floor(self.prior, p, scored.logits, scored.keys)

    def posterior_distribution(self, scored, step, noise=()):
        """Return q after `step` training calls, as a TensorFlow Probability distribution."""
        return self._distribution(self.logits_of_q(scored, noise), scored.keys, step)

    def _distribution(self, logits, keys, step):
        q = self.alignment.posterior(logits, keys, **self.alignment.at_step(step))
        return self._normalized(q) if self.alignment.kl_of == "weights" else q

    @staticmethod
    def _normalized(x):
        return x.normalized() if isinstance(x, RowDistribution) else x

    def prior_distribution(self, scored, step, others=""):
        """Return p after `step` training calls, as a TensorFlow Probability distribution.

        Args:
            scored: An `AlignmentInputs`.
            step: Number of training calls so far.
            others: Text that the error message appends to its suggestions, such as `', or context="gaussian"'`.

        Raises:
            ValueError: If there is neither a prior nor posterior logits.
        """
        if scored.posterior_logits is not None:
            return self._distribution(scored.logits, scored.keys, step)
        if self.prior is None:
            raise ValueError(
                "This attention has no prior. Use a stochastic alignment, and pass `prior` or `posterior_logits`"
                f"{others}. Received: alignment={type(self.alignment).__name__}, prior=None"
            )
        at_step = self.alignment.at_step(step)
        p = self.prior.distribution(self.alignment, scored.log_psi, scored.logits, scored.keys, **at_step)
        if not scored.psi_of_rows and getattr(p, "log_total", None) is not None:
            p = p.copy(log_total=None)
        if self.alignment.kl_of == "weights":
            return self._normalized(p)
        if getattr(p, "on_simplex", False):
            raise ValueError(
                'A prior on the simplex needs an alignment with kl_of="weights". '
                f"Received: alignment={self.alignment!r}, prior={type(self.prior).__name__}"
            )
        return p

    def statistics(self, scored, step, num_samples, seed):
        """Return float32 statistics of how random the weights are, a dictionary with one value per query.

        Args:
            scored: An `AlignmentInputs`.
            step: Number of training calls so far.
            num_samples: Number of draws for the standard deviation.
            seed: int32 tensor of shape (2,).
        """
        keys, expected = scored.keys, self.weights(scored, {})
        statistics = {"posterior_entropy": _entropy(expected, keys)}
        if scored.posterior_logits is not None:
            statistics["prior_entropy"] = _entropy(self.expected_weights(scored), keys)
        elif scored.log_psi is not None:
            # Without this softmax, the entropy would be wrong in a graph whose Psi sums to one over all nodes.
            statistics["prior_entropy"] = _entropy(keys.softmax(scored.log_psi), keys)
        deviation = self._standard_deviation(scored, expected, step, num_samples, seed)
        statistics["weights_sd"] = ops.divide_no_nan(keys.sum(deviation), keys.count(deviation))
        return statistics

    def _standard_deviation(self, scored, expected, step, num_samples, seed):
        logits, shape = self.logits_of_q(scored, {}), ops.shape(scored.logits)
        num_together = 1
        if all(isinstance(length, int) for length in shape):
            num_together = min(num_samples, max(1, STATISTICS_ENTRIES // max(math.prod(shape), 1)))
        total, squares = ops.zeros_like(expected), ops.zeros_like(expected)
        for start in range(0, num_samples, num_together):
            count = min(num_together, num_samples - start)
            noise = self.draw_noise((count, *shape), random.fold_in(seed, start), step)
            # Without this subtraction, a small variance would be lost in rounding.
            distance = self._weights(logits[None], noise.get("alignment"), scored.keys) - expected
            total += ops.sum(distance, axis=0)
            squares += ops.sum(ops.square(distance), axis=0)
        variance = squares / num_samples - ops.square(total / num_samples)
        return ops.sqrt(ops.maximum(variance, 0.0))

    def require_place_for_posterior_logits(self, posterior_logits):
        """Raise ValueError if the attention cannot use posterior logits."""
        if self.prior is not None:
            raise ValueError(
                "With posterior logits, the scores define the prior, so the attention must have prior=None. "
                f"Received: posterior_logits.shape={tuple(posterior_logits.shape)}, prior={type(self.prior).__name__}"
            )
        if not (self.is_stochastic and self.alignment.takes_divergence):
            raise ValueError(
                'Posterior logits need an alignment that supports a KL. Use for instance alignment="dirichlet", or '
                "use the layer `keras_vattn.CategoricalAttention`. "
                f"Received: alignment={type(self.alignment).__name__}"
            )


def as_finite_float32(logits):
    """Return float32 logits. Infinite logits become plus or minus 65504."""
    if logits is None:
        return None
    logits = ops.cast(logits, "float32")
    return ops.where(ops.isinf(logits), ops.sign(logits) * LARGEST, logits)


def _names_contextual(prior):
    return prior == "contextual" or (inspect.isclass(prior) and issubclass(prior, ContextualPrior))


def _entropy(weights, keys):
    """Return the entropy of each row in nats."""
    return -keys.sum(weights * ops.log(ops.where(weights > 0.0, weights, 1.0)))
