from functools import partial

import keras
from keras import ops

from keras_vattn import random, scores
from keras_vattn.alignments import DenseKeys
from keras_vattn.distributions import Categorical
from keras_vattn.latent_alignment.candidates import make_candidates, prediction_log_weights
from keras_vattn.latent_alignment.latent_objective import resolve_objective
from keras_vattn.latent_alignment.log_probabilities import log_probabilities
from keras_vattn.layers.stochastic_layer import StochasticLayer
from keras_vattn.support.keras_private import bind_call
from keras_vattn.support.masks import (
    both,
    check_mask,
    check_masks,
    check_sequences,
    check_shape,
    combine_masks,
    first_mask,
    zero_unseen,
)
from keras_vattn.support.sublayers import claim, require_dtype, serialize_sublayer


@keras.saving.register_keras_serializable(package="keras_vattn")
class CategoricalAttention(StochasticLayer):
    """Attention to one latent source position (Deng et al. 2018): returns candidate contexts and their probabilities.

    The choice of a position z is not differentiable. A model therefore computes the likelihood of the target under
    several candidate contexts:

    1. This layer returns the candidate contexts.
    2. Your own layers, ending in `keras_vattn.TokenLogLikelihood`, compute the likelihood under each candidate.
    3. `keras_vattn.LatentLogLikelihood`, with the same `objective`, combines these likelihoods.

    ```
    attention = CategoricalAttention("additive", objective)
    latent = attention(query, value, posterior_logits=posterior_logits)
    dense, token_log_likelihood = Dense(units), TokenLogLikelihood(vocabulary_size)
    hidden = tanh(dense(query)[:, :, None] + latent["candidates"])  # (B, T, K, units)
    log_likelihood = token_log_likelihood(hidden, targets)
    log_p, log_q = latent["log_prior"], latent["log_posterior"]
    bound = LatentLogLikelihood(objective)(log_likelihood, log_p, log_q)
    ```

    To predict log p of every word, call the same layers without posterior logits and without targets:

    ```
    latent = attention(query, value)
    hidden = tanh(dense(query)[:, :, None] + latent["candidates"])
    log_words = token_log_likelihood(hidden, log_weights=latent["log_weights"])  # (B, T, V)
    ```

    In a functional model, pass the same `return_attention_scores` in every call (a limitation of Keras 3.15).

    The scores define the prior p(z), and the posterior logits define q(z). The objective determines the K candidates:

    - `"enumerate"`: the values of all S keys.
    - `"top_k"`: the values of the `top_k` most probable keys.
    - `"sample"`: the values of `num_samples` keys sampled from q. With `"hard"`, or without posterior logits, the keys
      are sampled from p. With the soft baseline, training appends the `"soft"` average as a last candidate.
    - `"soft"` and `"gumbel"`: one candidate, a weighted average of all values.

    Use the same dropout mask for all candidates of a query: `Dropout(rate, noise_shape=(None, None, 1, None))`.

    For `"elbo"`, the layer calls `add_loss` with one KL in nats, summed over the queries and averaged over the batch.

    Formula:
        p(z_t = s) = "softmax"_s(phi_(t,s)), quad phi_(t,s) = "score"("query"_t, "key"_s)
        q(z_t = s) = "softmax"_s(hat(phi)_(t,s)), quad hat(phi)_(t,s) = "posterior_logits"_(t,s)
        "candidate"_(t,k) = "value"_(z_k) quad ("enumerate, top_k, sample")
        "candidate"_t = sum_s p(z_t = s) "value"_s quad ("soft")
        "candidate"_t = sum_s "softmax"_s((log q(z_t = s) + g_(t,s)) / tau) "value"_s quad ("gumbel")
        "KL"(q || p) = sum_t sum_s q(z_t = s) (log q(z_t = s) - log p(z_t = s)) quad ("elbo")

    Args:
        score: A score of `keras_vattn.Attention` that needs no state of a decoder, or its name. If `logits` are passed,
            the layer neither builds nor uses the score. Defaults to `"dot_product"`.
        objective: A `keras_vattn.LatentObjective`, or its name, such as `"elbo/sample"`. Defaults to `"elbo"`.
        **kwargs: Arguments of `keras_vattn.StochasticLayer` (`kl_weight`, `seed`, ...) and of every Keras layer.
            Without `kl_annealing`, p and q of a small model may stay nearly uniform.

    Call arguments:
        query: (B, T, Dq); T is 1 for a single query per example, as in question answering about an image.
        value: (B, S, D).
        key, query_mask, value_mask, key_mask, attention_mask, use_causal_mask: As in `keras_vattn.Attention`.
            Candidates at masked keys are zeros.
        training: Whether to use the training objective instead of the evaluation objective. Under
            `keras_vattn.posterior_draws`, a training objective that samples is also used in evaluation.
        posterior_logits: Logits (B, T, S) of q, from a network that may read the target; or `None` for a prediction.
        logits: Logits (B, T, S) of p that a decoder has already computed, or `None` to compute them with `score`.
        return_attention_scores: Whether to return p and q of all keys. Defaults to `False`.

    Returns:
        A dictionary. All arrays except `"candidates"` are float32.

        - `"candidates"`: (B, T, K, D), or (B, T, K + 1, D) with the soft baseline. Zeros if a query has no valid key.
        - `"log_prior"`: log p of the candidates in nats, (B, T, K): -1e30 at masked keys, 0 for a weighted average.
        - `"log_posterior"`: log q of the candidates in nats, (B, T, K): -1e30 and 0 as in `"log_prior"`. Equals
          `"log_prior"` if the objective has no posterior. Missing if q needs posterior logits and none are passed.
        - `"log_weights"`: the log weights of the prediction p(y) = sum_k weight_k p(y | z_k). The weights sum to 1: p
          for enumerated keys, renormalised p for `top_k` keys, 1/K for samples from p, and renormalised p/q for samples
          from q. The log weight of the baseline is -1e30.
        - `"weights"` and `"posterior_weights"`, if requested: p(z) and q(z), (B, T, S). q(z) needs posterior logits.

    Raises:
        ValueError: If a name is unknown, if inputs, masks or logits have the wrong shape, if posterior logits are
            passed although the objective has no posterior, or if training needs posterior logits and none are passed.

    Example:

    >>> layer = keras_vattn.CategoricalAttention("additive", "elbo/sample", seed=1)
    >>> inputs = keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 6))
    >>> latent = layer(*inputs, posterior_logits=keras.ops.zeros((2, 3, 5)), training=True)
    >>> {name: tuple(x.shape) for name, x in latent.items()}
    {'candidates': (2, 3, 2, 6), 'log_prior': (2, 3, 1), 'log_weights': (2, 3, 2), 'log_posterior': (2, 3, 1)}
    """

    feature_arguments = ("query", "value", "key")
    width_arguments = ("query", "key")

    def __init__(self, score="dot_product", objective="elbo", **kwargs):
        objective = resolve_objective(objective)
        # With autocast, Keras would cast float32 logits to the compute dtype.
        super().__init__(draws_noise=objective.draws, autocast=False, **kwargs)
        self.objective = objective
        self.score = scores.get(score, dtype=self.dtype_policy, name="score")
        require_dtype(self, "score", self.score)
        self.supports_masking = True
        if self.has_divergence:
            self.track_divergence(shown=self.objective.objective == "elbo")

    @property
    def has_divergence(self):
        """Whether a call may add a KL."""
        return "elbo" in (self.objective.in_training.objective, self.objective.at_inference.objective)

    @property
    def is_stochastic(self):
        return self.objective.draws

    def build(self, query_shape, value_shape, key_shape=None, posterior_logits_shape=None, logits_shape=None):
        key_shape = value_shape if key_shape is None else key_shape
        check_sequences(query_shape, value_shape, key_shape)
        if logits_shape is None:
            if self.score.needs_decoder:
                raise ValueError(
                    "A stateful score requires keras_vattn.AttentionDecoder. Call the decoder with `return_logits=True`"
                    f" and pass its `logits` to this layer. Received: score={type(self.score).__name__}, logits=None"
                )
            claim(self, "score", self.score)
            if not self.score.built:
                self.score.build(query_shape, key_shape)

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        training=None,
        use_causal_mask=False,
        posterior_logits=None,
        logits=None,
        return_attention_scores=False,
    ):
        self._check(query, value, key, query_mask, posterior_logits, logits)
        pair = self.objective.pair(training, self.draws is not None, posterior_logits is not None)
        mask = combine_masks(query, value, value_mask, key_mask, attention_mask, use_causal_mask)
        alignment = self._alignment(query, value, key, mask, posterior_logits, logits)
        if pair.objective == "elbo" and posterior_logits is not None:
            self._add_alignment_divergence(alignment, query_mask, training)
        with_baseline = self.objective.has_baseline_entry(pair, training)
        seed = self.noise_seed(training) if pair.draws else None
        if pair.draws and seed is None:
            # Without this seed, inference="importance_weighted/sample" could not sample outside `posterior_draws`.
            seed = random.draw_seed(self.seed_generator)
        candidates, log_prior, log_posterior = make_candidates(pair, self.objective, alignment, seed, with_baseline)
        log_weights = prediction_log_weights(pair, log_prior, log_posterior, with_baseline)
        result = {"candidates": candidates, "log_prior": log_prior, "log_weights": log_weights}
        if self._returns_posterior(posterior_logits is not None):
            result["log_posterior"] = log_prior if log_posterior is None else log_posterior
        if return_attention_scores:
            result["weights"] = ops.exp(alignment["log_prior"])
            if posterior_logits is not None:
                result["posterior_weights"] = ops.exp(alignment["log_posterior"])
        # `LatentLogLikelihood` checks that this objective equals its own.
        result["log_prior"].latent_objective = self.objective
        return result

    def _check(self, query, value, key, query_mask, posterior_logits, logits):
        check_sequences(query.shape, value.shape, (value if key is None else key).shape)
        expected = (query.shape[0], query.shape[1], value.shape[1])
        check_mask("query_mask", query_mask, expected[:2], "(B, T)")
        for name, x in (("posterior_logits", posterior_logits), ("logits", logits)):
            if x is not None:
                check_shape(name, x, expected, "(B, T, S)")
        if posterior_logits is not None and not self.objective.uses_posterior:
            raise ValueError(
                f"`posterior_logits` needs an objective with a posterior. Received: {self.objective.in_training}, "
                f"inference={self.objective.at_inference}, posterior_logits.shape={tuple(posterior_logits.shape)}"
            )
        if self.built and logits is None and not self.score.built:
            raise ValueError("This layer was built without a score: pass `logits` in each call. Received: logits=None")

    def _returns_posterior(self, has_posterior):
        return has_posterior or not self.objective.uses_posterior

    def _alignment(self, query, value, key, mask, posterior_logits, logits):
        query, value, key = (None if x is None else ops.cast(x, self.compute_dtype) for x in (query, value, key))
        keys = DenseKeys(mask)
        value, key = zero_unseen(mask, value, key)
        if logits is None:
            logits = self.score.score(query, self.score.project_memory(value if key is None else key, keys))
        keys = keys.without_hidden(logits)
        return {
            "value": value,
            "keys": keys,
            "log_prior": log_probabilities(logits, keys),
            "log_posterior": None if posterior_logits is None else log_probabilities(posterior_logits, keys),
        }

    def _add_alignment_divergence(self, alignment, query_mask, training):
        keys, log_prior = alignment["keys"], alignment["log_prior"]
        q = Categorical(alignment["log_posterior"])
        p = Categorical(ops.stop_gradient(log_prior) if self.objective.detach_prior else log_prior)
        valid = both(keys.any_valid(), query_mask)
        self.add_divergence(q.kl_divergence(p), valid, entries=keys.count(log_prior), training=training)

    def prior_distribution(self, *arguments, **options):
        """Return p(z) for the arguments of a call, a categorical distribution with batch shape (B, T).

        The layer must be built.
        """
        return Categorical(self._alignment_of_call(arguments, options)["log_prior"])

    def posterior_distribution(self, *arguments, **options):
        """Return q(z) for the arguments of a call, or p(z) if `posterior_logits` is None."""
        alignment = self._alignment_of_call(arguments, options)
        log_posterior = alignment["log_posterior"]
        return Categorical(alignment["log_prior"] if log_posterior is None else log_posterior)

    def _alignment_of_call(self, arguments, options):
        self.require_built()
        inputs = bind_call(partial(CategoricalAttention.call, self), arguments, options)
        masks = (inputs[name] for name in ("value_mask", "key_mask", "attention_mask", "use_causal_mask"))
        mask = combine_masks(inputs["query"], inputs["value"], *masks)
        names = ("query", "value", "key", "posterior_logits", "logits")
        query, value, key, posterior_logits, logits = (
            None if inputs[name] is None else ops.convert_to_tensor(inputs[name]) for name in names
        )
        self._check(query, value, key, None, posterior_logits, logits)
        return self._alignment(query, value, key, mask, posterior_logits, logits)

    def compute_output_shape(
        self, query_shape, value_shape, key_shape=None, posterior_logits_shape=None, logits_shape=None
    ):
        num_keys, has_posterior = value_shape[1], posterior_logits_shape is not None
        pairs = {(False, self.objective.pair(training=False, marked=False, has_posterior=has_posterior))}
        if self.objective.in_training.draws:
            pairs.add((False, self.objective.in_training))
        if has_posterior or not self.objective.in_training.needs_posterior:
            pairs.add((True, self.objective.in_training))
        num_candidates, num_contexts = set(), set()
        for training, pair in pairs:
            count = self.objective.num_candidates(pair, num_keys)
            num_candidates.add(count)
            num_contexts.add(None if count is None else count + self.objective.has_baseline_entry(pair, training))
        # The number of candidates is unknown if it differs between training and evaluation.
        shape = (*query_shape[:-1], num_candidates.pop() if len(num_candidates) == 1 else None)
        contexts = (*query_shape[:-1], num_contexts.pop() if len(num_contexts) == 1 else None)
        shapes = {"candidates": (*contexts, value_shape[-1]), "log_prior": shape, "log_weights": contexts}
        return {**shapes, "log_posterior": shape} if self._returns_posterior(has_posterior) else shapes

    def compute_output_spec(self, *arguments, **options):
        inputs = bind_call(partial(CategoricalAttention.call, self), arguments, options)
        query, value, posterior_logits = inputs["query"], inputs["value"], inputs["posterior_logits"]
        self._check(query, value, inputs["key"], inputs["query_mask"], posterior_logits, inputs["logits"])
        check_masks(query, value, *(inputs[name] for name in ("value_mask", "key_mask", "attention_mask")))
        names = ("query", "value", "key", "posterior_logits", "logits")
        shapes = self.compute_output_shape(*(None if inputs[name] is None else inputs[name].shape for name in names))
        if inputs["return_attention_scores"]:
            shapes["weights"] = (*query.shape[:-1], value.shape[1])
            if posterior_logits is not None:
                shapes["posterior_weights"] = shapes["weights"]
        spec = {
            name: keras.KerasTensor(shape, dtype=self.compute_dtype if name == "candidates" else "float32")
            for name, shape in shapes.items()
        }
        spec["log_prior"].latent_objective = self.objective
        return spec

    def compute_mask(self, query, previous_mask=None):
        mask = first_mask(previous_mask)
        names = ("candidates", "log_prior", "log_weights", "log_posterior", "weights", "posterior_weights")
        return None if mask is None else dict.fromkeys(names, mask)

    def get_config(self):
        return {
            **super().get_config(),
            **self.stochastic_config(),
            "score": serialize_sublayer(self.score),
            "objective": keras.saving.serialize_keras_object(self.objective),
        }
