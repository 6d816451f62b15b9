from functools import partial

import keras
from keras import ops

from keras_vattn import contexts, scores
from keras_vattn.alignments import VariationalAlignment
from keras_vattn.alignments.variational_alignment import as_finite_float32
from keras_vattn.layers.attention_steps import AttentionSteps
from keras_vattn.layers.chunked_attention import chunk_size
from keras_vattn.support.keras_private import bind_call
from keras_vattn.support.masks import (
    boolean_masks,
    check_mask,
    check_masks,
    check_sequences,
    check_shape,
    combine_masks,
    first_mask,
)
from keras_vattn.support.sublayers import claim, require_dtype, serialize_sublayer
from keras_vattn.support.validation import fraction


@keras.saving.register_keras_serializable(package="keras_vattn")
class Attention(AttentionSteps):
    """Attention built from a score, an alignment and a context.

    Score, alignment and context can be names, classes, config dictionaries or instances. The default is deterministic
    dot-product attention. These arguments reproduce published attention layers:

    - `alignment="weibull"` or `"lognormal"`, with a prior: Bayesian attention (Fan et al. 2020).
    - `alignment="dirichlet"`, with posterior logits: relaxed alignment (Deng et al. 2018).
    - `context="gaussian"`: variational attention (Bahuleyan et al. 2018).

    The score computes the logits phi. Training draws the weights from the posterior q, and the KL compares q with the
    prior p:

    - Without posterior logits, q is alignment(phi), and p is the argument `prior`. With `prior=None`, the weights have
      no KL.
    - With posterior logits, q is alignment(posterior_logits), and p is alignment(phi). For prediction, omit the
      posterior logits: the layer then uses alignment(phi).

    Each call adds the sum of its KLs, in nats, with one `add_loss` call.

    Formula:
        phi_(t,s) = "score"("query"_t, "key"_s), quad w_t ~ q, quad c_t = "context"(w_t, "value")
        q = "alignment"(phi), quad p = "prior" quad "(without posterior logits)"
        q = "alignment"(hat(phi)), quad p = "alignment"(phi) quad "(with posterior logits " hat(phi) ")"
        "loss" = "kl_weight" * "kl_annealing" * 1/B sum_(b,t) "KL"(q || p)

    Args:
        score: `"dot_product"` (no 1 / sqrt(D)), `"scaled_dot_product"`, `"bilinear"` (Luong's general), `"additive"`
            (Bahdanau), `"concat"`, `"location"`, `"local"` (Luong) or a `Score`. Defaults to `"dot_product"`.
        alignment: A name in `keras_vattn.alignments.ALIGNMENTS`, such as `"weibull"`, or an `Alignment`. Defaults to
            `"softmax"`.
        context: `"weighted_sum"`, `"gaussian"` or a `Context`. Defaults to `"weighted_sum"`.
        prior: `"fixed"`, `"contextual"` or a `Prior`. With `None`, the weights have a KL only if posterior logits are
            passed. Defaults to `None`.
        dropout: Dropout rate of the weights in training. The remaining weights are not renormalised. Defaults to 0.0.
        warm_start_steps: Number of initial training calls that ignore posterior logits. These calls draw the weights
            from p, with a KL of 0 (the Jensen bound in algorithm 2 of Deng et al. 2018). `kl_annealing` begins after
            these calls. Defaults to 0.
        query_chunk_size: As in `keras_vattn.MultiHeadAttention`. A decoder does not use chunks. Defaults to `None`.
        **kwargs: Arguments of `keras_vattn.StochasticLayer` (`kl_weight`, `seed`, ...) and of every Keras layer.

    Call arguments:
        query: (B, T, Dq).
        value: (B, S, D).
        key: (B, S, Dk), or `None` to use `value`.
        query_mask: Boolean (B, T). A masked query adds no KL. The values of a masked query must be finite.
        value_mask: Boolean (B, S). A masked position has weight, gradient and KL exactly 0, whatever its values are.
        key_mask: Boolean (B, S), combined with `value_mask`.
        attention_mask: Boolean (B, T, S), or (T, S) for all examples, or any shape that broadcasts to these shapes.
            The layer combines all masks.
        return_attention_scores: Whether to return the weights as well. Defaults to `False`.
        training: Whether to draw samples and use dropout. At inference the context is the posterior mean, except under
            `keras_vattn.posterior_draws`.
        use_causal_mask: Whether query t attends only to the positions up to t. Defaults to `False`.
        posterior_logits: (B, T, S), or `None`. They come from an inference network, which may read the target. Keras
            casts all float inputs to the compute dtype. The layer replaces infinite logits, such as overflows of this
            cast, with 65504 or -65504, the largest float16 numbers.

    Returns:
        The context (B, T, D), and the weights (B, T, S) with `return_attention_scores=True`. For a query without a
        valid key, context and weights are zero.

    Raises:
        ValueError: If a name is unknown, or a rate is outside [0, 1).
        ValueError: If an input, a mask or the posterior logits have the wrong shape.
        ValueError: If a prior and posterior logits are combined.
        ValueError: If a prior or posterior logits are used with a deterministic alignment.
        ValueError: If the score needs a state, which only `keras_vattn.AttentionDecoder` provides.

    Example:

    >>> query, value = keras.ops.ones((2, 3, 8)), keras.ops.ones((2, 5, 8))
    >>> layer = keras_vattn.Attention(score="additive", context="gaussian", kl_weight=0.1)
    >>> context, weights = layer(query, value, return_attention_scores=True, training=True)
    >>> context.shape, weights.shape, len(layer.losses)
    (TensorShape([2, 3, 8]), TensorShape([2, 3, 5]), 1)
    """

    feature_arguments = ("query", "value", "key")

    @property
    def width_arguments(self):
        # Values may have any width if the context has no weights.
        return self.feature_arguments if self.context.weights else ("query", "key")

    def __init__(
        self,
        score="dot_product",
        alignment="softmax",
        context="weighted_sum",
        prior=None,
        *,
        dropout=0.0,
        warm_start_steps=0,
        query_chunk_size=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.score = scores.get(score, dtype=self.dtype_policy, name="score")
        self.context = contexts.get(context, dtype=self.dtype_policy, name="context")
        for name, sublayer in (("score", self.score), ("context", self.context)):
            require_dtype(self, name, sublayer)
        self.set_alignment(VariationalAlignment(alignment, prior, warm_start_steps, dtype=self.dtype_policy))
        self.dropout = fraction("dropout", dropout)
        self.query_chunk_size = chunk_size(query_chunk_size)
        if query_chunk_size is not None and self.score.keeps_state:
            raise ValueError(
                "This score counts the queries, and its count would restart in each chunk: set query_chunk_size=None. "
                f"Received: query_chunk_size={query_chunk_size}, score={type(self.score).__name__}"
            )
        self.annealing_start = self.warm_start_steps
        self.supports_masking = True
        if self.is_stochastic:
            # Otherwise `fit` would log a KL of 0 for a layer without a prior that gets no posterior logits.
            self.track_divergence(shown=self.context.has_divergence or self.alignment_prior is not None)

    @property
    def warm_start_steps(self):
        return self.variational.warm_start_steps

    @property
    def is_stochastic(self):
        return super().is_stochastic or self.context.has_divergence

    def build(self, query_shape, value_shape, key_shape=None, posterior_logits_shape=None):
        key_shape = value_shape if key_shape is None else key_shape
        check_sequences(query_shape, value_shape, key_shape)
        for name, sublayer in (("score", self.score), ("context", self.context), ("prior", self.alignment_prior)):
            claim(self, name, sublayer)
        if not self.score.built:
            self.score.build(query_shape, key_shape)
        if not self.context.built:
            self.context.build((*query_shape[:-1], key_shape[-2]), value_shape)
        if self.alignment_prior is not None and not self.alignment_prior.built:
            self.alignment_prior.build(key_shape)

    def __call__(self, query, *arguments, **options):
        if isinstance(query, (list, tuple)):
            query, arguments, options = _unpack_list(query, arguments, options)
        return super().__call__(query, *arguments, **options)

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        posterior_logits=None,
    ):
        self._check(query, value, key, query_mask, posterior_logits)
        posterior_logits = as_finite_float32(posterior_logits)
        size = self.chunk_size_of(1, ops.shape(query)[1], ops.shape(value)[1], return_attention_scores)
        if size is not None:
            masks = boolean_masks(query, value, value_mask, key_mask, attention_mask)
            inputs = [query], [value, value if key is None else key], posterior_logits
            return self._in_chunks(inputs, masks, size, training, query_mask, use_causal_mask)
        mask = combine_masks(query, value, value_mask, key_mask, attention_mask, use_causal_mask)
        memory = self.prepare_memory(value, key, mask)
        shape = ops.shape(query)
        noise = self.draw_noise(shape[0], shape[1], memory, self.draw_seeds(training))
        attended = self.attend(query, memory, noise, training, posterior_logits)
        self.account(attended, memory, noise, query_mask, training, posterior_logits)
        if return_attention_scores:
            return attended["context"], attended["weights"]
        return attended["context"]

    def _in_chunks(self, inputs, masks, size, training, query_mask, is_causal):
        queries, keys, posterior_logits = inputs

        def attend(queries, keys, entries, valid, chunk):
            memory = self.prepare_memory(*keys, valid.valid)
            noise = self.draw_noise(1, size, memory, chunk.seeds, chunk.num_keys)
            attended = self.attend(*queries, memory, noise, training, *entries)
            divergence = self.divergence(attended, memory, noise, None, training, *(entries or [None]), chunk)
            return attended["context"], divergence

        inputs = queries, keys, [] if posterior_logits is None else [posterior_logits]
        weights = self.trainable_variables
        context, divergence = self.over_chunks(attend, size, inputs, masks, weights, training, query_mask, is_causal)
        self.add_divergence(**divergence, training=training)
        return context

    def _check(self, query, value, key, query_mask, posterior_logits):
        if self.score.needs_decoder:
            raise ValueError(
                "A stateful score requires keras_vattn.AttentionDecoder, which passes the state from step to step. "
                f"Received: score={type(self.score).__name__}"
            )
        check_sequences(query.shape, value.shape, (value if key is None else key).shape)
        self.check_posterior_logits(posterior_logits, (query.shape[0], query.shape[1], value.shape[1]))
        check_mask("query_mask", query_mask, (query.shape[0], query.shape[1]), "(B, T)")

    def check_posterior_logits(self, posterior_logits, expected):
        """Raise ValueError if posterior logits are passed but not supported, or have the wrong shape."""
        if posterior_logits is None:
            return
        self.variational.require_place_for_posterior_logits(posterior_logits)
        check_shape("posterior_logits", posterior_logits, expected, "(B, T, S)")

    def posterior_distribution(self, *arguments, **options):
        """Return q, a TensorFlow Probability distribution. Pass the arguments of `call`. The layer must be built.

        - Gaussian context: q is the distribution of the context at the expected weights. The batch shape is (B, T), and
          the event shape is (D,).
        - Stochastic weights without a Gaussian context: q is the distribution of the unnormalised weights (B, T, S). If
          the alignment has `kl_of="weights"`, q is the distribution of the normalised weights.
        - Deterministic attention: q is a point mass at the context.
        """
        if self.alignment.is_stochastic and not self.context.has_divergence:
            return super().posterior_distribution(*arguments, **options)
        mean = self._attend_at_mean(arguments, options)[1]["mean"]
        return self.context.distribution(mean, self.context.posterior_parameters(mean))

    def prior_distribution(self, *arguments, **options):
        if not self.context.has_divergence:
            return super().prior_distribution(*arguments, **options)
        memory, attended, _ = self._attend_at_mean(arguments, options)
        return self.context.prior_distribution(attended["mean"], memory["prior_mean"])

    def _scored(self, arguments, options):
        memory, attended, posterior_logits = self._attend_at_mean(arguments, options)
        return self.alignment_inputs(memory, attended["logits"], posterior_logits)

    def _attend_at_mean(self, arguments, options):
        """Return the memory, the result of `attend` without noise, and the posterior logits."""
        call_arguments = self._bind(arguments, options)
        query, value, key, posterior_logits = (
            call_arguments[name] for name in ("query", "value", "key", "posterior_logits")
        )
        self._check(query, value, key, call_arguments["query_mask"], posterior_logits)
        posterior_logits = as_finite_float32(posterior_logits)
        masks = (call_arguments[name] for name in ("value_mask", "key_mask", "attention_mask", "use_causal_mask"))
        memory = self.prepare_memory(value, key, combine_masks(query, value, *masks))
        return memory, self.attend(query, memory, {}, posterior_logits=posterior_logits), posterior_logits

    @property
    def _other_priors(self):
        return f', or context="gaussian" (here {type(self.context).__name__})'

    def compute_output_shape(self, query_shape, value_shape, key_shape=None, posterior_logits_shape=None):
        return self.context.compute_output_shape((*query_shape[:-1], value_shape[-2]), value_shape)

    def compute_output_spec(self, *arguments, **options):
        call_arguments = bind_call(partial(Attention.call, self), arguments, options)
        query, value = call_arguments["query"], call_arguments["value"]
        self._check(query, value, *(call_arguments[name] for name in ("key", "query_mask", "posterior_logits")))
        check_masks(query, value, *(call_arguments[name] for name in ("value_mask", "key_mask", "attention_mask")))
        context = keras.KerasTensor(self.compute_output_shape(query.shape, value.shape), dtype=self.compute_dtype)
        self.chunk_size_of(1, query.shape[1], value.shape[1], call_arguments["return_attention_scores"])
        if not call_arguments["return_attention_scores"]:
            return context
        return context, keras.KerasTensor((*query.shape[:-1], value.shape[-2]), dtype=self.compute_dtype)

    def compute_mask(self, query, previous_mask=None):
        return first_mask(previous_mask)

    def get_config(self):
        return {
            **super().get_config(),
            **self.stochastic_config(),
            "score": serialize_sublayer(self.score),
            "alignment": keras.saving.serialize_keras_object(self.alignment),
            "context": serialize_sublayer(self.context),
            "prior": serialize_sublayer(self.alignment_prior),
            "dropout": self.dropout,
            "warm_start_steps": self.warm_start_steps,
            "query_chunk_size": self.query_chunk_size,
        }


def _unpack_list(inputs, arguments, options):
    if not 2 <= len(inputs) <= 3 or arguments:
        raise ValueError(
            "A list of inputs is [query, value] or [query, value, key]; pass all other arguments by name. "
            f"Received: a list of {len(inputs)} and {len(arguments)} other positional arguments"
        )
    masks = options.pop("mask", None) or ()
    names = ("query_mask", "value_mask", "key_mask")
    return inputs[0], tuple(inputs[1:]), {**options, **dict(zip(names, masks, strict=False))}
