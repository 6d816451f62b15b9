"""Defines the test cases of the battery for the layers of a latent alignment."""

from functools import partial

import numpy as np
import tensorflow as tf
from battery_attention import AttentionCase
from battery_cases import BATCH, DIFFERENT_WIDTHS, KL_OPTIONS, STEPS, VOCABULARY, WITH_POSTERIOR, Case
from keras import ops

from keras_vattn import CategoricalAttention, LatentLogLikelihood, LatentObjective, RewardToGo, TokenLogLikelihood

CANDIDATES = 5


class CategoricalCase(AttentionCase):
    """A test case for CategoricalAttention, which returns candidates and float32 log weights, -1e30 at masked keys."""

    def outputs(self, result):
        """Return the candidates and their products with exp(log weight), because -1e30 is usable only in an
        exponential."""
        candidates = ops.cast(result["candidates"], "float32")
        logarithms = (x for name, x in result.items() if name.startswith("log_"))
        return [candidates, *(candidates * ops.exp(x)[..., None] for x in logarithms)]

    def context(self, result):
        return result["candidates"]

    def noisy(self, result):
        return result["candidates"]

    def attention_weights(self, result):
        return [result[name] for name in ("weights", "posterior_weights") if name in result]

    def dtypes(self, layer, result):
        return {name: layer.compute_dtype if name == "candidates" else "float32" for name in result}

    def output_shapes(self, layer):
        shapes = {f"{name}_shape": tuple(x.shape) for name, x in self.arrays().items()}
        return layer.compute_output_shape(**shapes)

    def known_shapes(self, result):
        """The number of candidates is unknown if training draws, because inference uses all keys."""
        shapes = super().known_shapes(result)
        if not self.draws:
            return shapes
        return {name: (*shape[:2], None, *shape[3:]) for name, shape in shapes.items()}

    def without_noise(self, layer, arrays):
        """Return the result without noise: every draw is the most probable key of q, or of p if there is no q."""
        every_key = layer(**arrays, training=False)
        if not self.draws:
            return every_key
        most_probable = ops.argmax(every_key["log_posterior"], axis=-1)
        index = tf.repeat(most_probable[..., None], layer.objective.num_samples, axis=-1)
        draws = {name: tf.gather(x, index, batch_dims=2) for name, x in every_key.items()}
        log_weights = ops.full_like(draws["log_prior"], -np.log(layer.objective.num_samples))
        return {**draws, "log_weights": log_weights}


class TokenLogLikelihoodCase(Case):
    """A test case for TokenLogLikelihood, which is float32 under every policy. Half of the words are ignored."""

    query_mask = "inputs_mask"

    def arrays(self, batch=BATCH, steps=STEPS, seed=0):
        generator = np.random.default_rng(seed)
        inputs = generator.normal(size=(batch, steps, CANDIDATES, self.widths["inputs"]))
        targets = generator.integers(VOCABULARY, size=(batch, steps)) * generator.integers(2, size=(batch, steps))
        return {"inputs": tf.constant(inputs, tf.float32), "targets": tf.constant(targets, tf.int32)}

    def dtypes(self, layer, result):
        return "float32"

    def make_extreme(self, layer, arrays):
        largest = ops.max(ops.abs(ops.matmul(arrays["inputs"], layer.kernel)))
        layer.kernel.assign(layer.kernel * (1e4 / largest))
        return arrays


class VotesCase(TokenLogLikelihoodCase):
    """A test case for TokenLogLikelihood with targets that weight every word (votes)."""

    def arrays(self, batch=BATCH, steps=STEPS, seed=0):
        votes = np.random.default_rng(seed).multinomial(10, np.ones(VOCABULARY) / VOCABULARY, size=(batch, steps))
        return {**super().arrays(batch, steps, seed), "targets": tf.constant(votes, tf.float32)}


class LatentLogLikelihoodCase(Case):
    """A test case for LatentLogLikelihood. It does not draw, but its inputs may be values at sampled keys."""

    query_mask = "log_likelihood_mask"

    @property
    def values_draws(self):
        return "log_posterior" in self.widths

    @property
    def log_probabilities(self):
        return tuple(name for name in self.widths if name != "log_likelihood")

    def arrays(self, batch=BATCH, steps=STEPS, seed=0):
        return {name: tf.nn.log_softmax(x) for name, x in super().arrays(batch, steps, seed).items()}

    def masks(self, batch=BATCH, steps=STEPS):
        """Return the mask of the log-likelihood, and a different mask of log p."""
        masks = super().masks(batch, steps)
        return {**masks, "log_prior_mask": tf.reverse(masks["log_likelihood_mask"], [0])}

    def dtypes(self, layer, result):
        return "float32"

    def without_noise(self, layer, arrays):
        """In training, candidates are draws of equal weight, so the result is a mean. Inference uses all keys."""
        if not self.values_draws:
            return super().without_noise(layer, arrays)
        return ops.mean(arrays["log_likelihood"], axis=-1)

    def make_extreme(self, layer, arrays):
        return {name: tf.nn.log_softmax(x * (1e4 / ops.max(ops.abs(x)))) for name, x in arrays.items()}


class RewardToGoCase(Case):
    """A test case for RewardToGo. The weights are one-hot, as a decoder samples them."""

    query_mask = "log_likelihood_mask"

    def arrays(self, batch=BATCH, steps=STEPS, seed=0):
        arrays = super().arrays(batch, steps, seed)
        log_likelihood = -ops.square(arrays["log_likelihood"])
        weights = ops.one_hot(ops.argmax(arrays["weights"], axis=-1), CANDIDATES)
        return {**arrays, "log_likelihood": log_likelihood, "weights": weights}

    def masks(self, batch=BATCH, steps=STEPS):
        """Return the mask of the log-likelihood, and a different mask of the logits."""
        masks = super().masks(batch, steps)
        return {**masks, "logits_mask": tf.reverse(masks["log_likelihood_mask"], [0])}

    def dtypes(self, layer, result):
        return "float32"

    def make_extreme(self, layer, arrays):
        return {**arrays, "logits": arrays["logits"] * (1e4 / ops.max(ops.abs(arrays["logits"])))}


def _categorical_case(name, objective, widths=DIFFERENT_WIDTHS, bad_options=(), **options):
    return CategoricalCase(
        f"categorical-{name}",
        partial(CategoricalAttention, score="bilinear", objective=objective),
        widths,
        tempered=False,
        bad_options=bad_options,
        **options,
    )


LOG_PROBABILITIES = {"log_likelihood": CANDIDATES, "log_prior": CANDIDATES}
TWO_DRAWS = LatentObjective("elbo", "sample", num_samples=2, baseline=None)

LATENT_CASES = [
    _categorical_case(
        "marginal",
        "marginal",
        bad_options=({"score": "cosine"}, {"objective": "marginal/sample"}, {"objective": 3}, *KL_OPTIONS),
    ),
    _categorical_case("elbo-enumerate", "elbo/enumerate", WITH_POSTERIOR, divergence=True),
    _categorical_case("elbo-two-draws", TWO_DRAWS, WITH_POSTERIOR, divergence=True, draws=True),
    _categorical_case("hard-one-draw", LatentObjective("hard", "sample", baseline=None), draws=True),
    TokenLogLikelihoodCase(
        "token-log-likelihood",
        partial(TokenLogLikelihood, vocabulary_size=VOCABULARY),
        {"inputs": 6, "targets": None},
        bad_options=({"vocabulary_size": 0}, {"chunk_size": 0}, {"chunk_size": 2.5}),
    ),
    TokenLogLikelihoodCase(
        "token-log-likelihood-chunks-ignore-class",
        partial(TokenLogLikelihood, vocabulary_size=VOCABULARY, ignore_class=0, chunk_size=7),
        {"inputs": 6, "targets": None},
    ),
    VotesCase(
        "token-log-likelihood-votes",
        partial(TokenLogLikelihood, vocabulary_size=VOCABULARY, chunk_size=7),
        {"inputs": 6, "targets": None},
    ),
    LatentLogLikelihoodCase(
        "latent-log-likelihood-marginal",
        partial(LatentLogLikelihood, objective="marginal"),
        LOG_PROBABILITIES,
        bad_options=({"objective": "soft/sample"}, {"objective": 3}),
    ),
    LatentLogLikelihoodCase(
        "latent-log-likelihood-moving-average",
        partial(
            LatentLogLikelihood,
            objective=LatentObjective("elbo", "sample", num_samples=CANDIDATES, baseline="moving_average"),
        ),
        {**LOG_PROBABILITIES, "log_posterior": CANDIDATES},
    ),
    RewardToGoCase(
        "reward-to-go",
        partial(RewardToGo, entropy_weight=0.1),
        {"log_likelihood": 1, "weights": CANDIDATES, "logits": CANDIDATES},
        bad_options=({"baseline": "soft"}, {"baseline_decay": 1.0}, {"entropy_weight": -1.0}),
    ),
]
