import keras
from keras import ops

from keras_vattn import alignments, contexts, random, scores
from keras_vattn.layers.stochastic_layer import StochasticLayer
from keras_vattn.validation import dropout_rate


@keras.saving.register_keras_serializable(package="keras_vattn")
class Attention(StochasticLayer):
    """Attention put together from a score, an alignment and a context.

    logits = score(query, key); weights = alignment(logits); context = context(weights, value). Each of the three is a
    name, a class, a config dictionary or an instance. With the defaults this is deterministic dot-product attention;
    `context="gaussian"` is the variational attention of Bahuleyan et al. 2018, whose KL arrives through `add_loss`.

    Args:
        score: `"dot_product"`, `"bilinear"`, `"additive"` or a `Score`. Defaults to `"dot_product"`.
        alignment: `"softmax"` or an `Alignment`. Defaults to `"softmax"`.
        context: `"weighted_sum"`, `"gaussian"` or a `Context`. Defaults to `"weighted_sum"`.
        kl_weight: Constant factor on the KL (Bahuleyan's gamma_a, eq. 8). Defaults to 1.0.
        kl_annealing: `None` or a schedule over the training calls (lambda_KL in eq. 8). Defaults to `None`.
        kl_reduction: `"sum"`: KL summed over valid queries and dimensions, averaged over the batch, in nats;
            `"query_mean"`: divided by the number of valid queries, right beside a token-mean loss; `"mean"`: divided by
            the number of dimensions too. Defaults to `"sum"`.
        dropout: Rate of dropout on the weights in training, not renormalised. Defaults to 0.0.
        seed: Integer or `None`. Defaults to `None`.

    Call arguments:
        query: (B, T, Dq).
        value: (B, S, D).
        key: (B, S, Dk), `value` where it is `None`.
        query_mask: Boolean (B, T). A masked query adds no KL.
        value_mask: Boolean (B, S). A masked position has weight, gradient and KL exactly 0.
        key_mask: Boolean (B, S), combined with `value_mask`.
        attention_mask: Boolean (B, T, S), combined with the others.
        return_attention_scores: Whether to return the weights too. Defaults to `False`.
        training: Whether to draw and to drop out. At inference the context is the posterior mean, except under
            `keras_vattn.posterior_draws`.
        use_causal_mask: Whether query t sees only the positions up to t. Defaults to `False`.

    Returns:
        The context (B, T, D), and the weights (B, T, S) with `return_attention_scores=True`. A row without a valid key
        gives zeros.

    Raises:
        ValueError: For unknown names, rates outside [0, 1), and inputs or masks of the wrong rank or shape.

    Example:

    >>> query, value = keras.ops.ones((2, 3, 8)), keras.ops.ones((2, 5, 8))
    >>> layer = keras_vattn.Attention(score="additive", context="gaussian", kl_weight=0.1)
    >>> context, weights = layer(query, value, return_attention_scores=True, training=True)
    >>> context.shape, weights.shape, len(layer.losses)
    (TensorShape([2, 3, 8]), TensorShape([2, 3, 5]), 1)
    """

    def __init__(
        self,
        score="dot_product",
        alignment="softmax",
        context="weighted_sum",
        kl_weight=1.0,
        kl_annealing=None,
        kl_reduction="sum",
        dropout=0.0,
        seed=None,
        **kwargs,
    ):
        super().__init__(kl_weight=kl_weight, kl_annealing=kl_annealing, kl_reduction=kl_reduction, seed=seed, **kwargs)
        self.score = scores.get(score, dtype=self.dtype_policy, name="score")
        self.alignment = alignments.get(alignment)
        self.context = contexts.get(context, dtype=self.dtype_policy, name="context")
        self.dropout = dropout_rate(dropout)
        self.supports_masking = True
        if self.context.has_divergence:
            self.track_divergence()

    @property
    def is_stochastic(self):
        return self.alignment.is_stochastic or self.context.has_divergence

    def build(self, query_shape, value_shape, key_shape=None):
        key_shape = value_shape if key_shape is None else key_shape
        for name, shape in (("query", query_shape), ("value", value_shape), ("key", key_shape)):
            if len(shape) != 3:
                raise ValueError(
                    f"`{name}` must have shape (batch, steps, width). Received: {name}.shape={tuple(shape)}"
                )
        if None not in (query_shape[0], value_shape[0]) and query_shape[0] != value_shape[0]:
            raise ValueError(
                "`query` and `value` must have equal batch sizes. "
                f"Received: query.shape={tuple(query_shape)}, value.shape={tuple(value_shape)}"
            )
        for axis, what in ((0, "batch sizes"), (1, "lengths")):
            if None not in (value_shape[axis], key_shape[axis]) and value_shape[axis] != key_shape[axis]:
                raise ValueError(
                    f"`key` and `value` must have equal {what}. "
                    f"Received: key.shape={tuple(key_shape)}, value.shape={tuple(value_shape)}"
                )
        # A score or context that comes from a saved configuration is built already.
        if not self.score.built:
            self.score.build(query_shape, key_shape)
        if not self.context.built:
            self.context.build((*query_shape[:-1], key_shape[-2]), value_shape)

    def prepare_memory(self, value, key=None, mask=None):
        """Return what depends on the memory alone, computed once: projected keys, value, keys (mask) and the prior's
        mean.

        Args:
            value: (B, S, D).
            key: (B, S, Dk) or `None` for `value`.
            mask: Boolean tensor that broadcasts to (B, T, S), or `None`.
        """
        keys = alignments.DenseKeys(mask)
        if mask is not None:
            # What no query sees may be anything, NaN too, and a product with a zero weight would let it through.
            seen = ops.any(mask, axis=1)[..., None]  # (B, S, 1)
            value = ops.where(seen, value, ops.zeros_like(value))
            key = None if key is None else ops.where(seen, key, ops.zeros_like(key))
        return {
            "projected_keys": self.score.project_keys(value if key is None else key),
            "value": value,
            "keys": keys,
            "prior_mean": self.context.prior_parameters(value, keys) if self.context.has_divergence else None,
        }

    def draw_noise(self, batch_size, num_queries, memory, training=False):
        """Return the noise of all queries, a dictionary of float32 (B, T, ...), empty where the call does not draw."""
        seed = self.noise_seed(training)
        noise = {}
        if seed is None:
            return noise
        value = memory["value"]
        num_keys = ops.shape(value)[1]
        alignment_noise = self.alignment.noise((batch_size, num_queries, num_keys), random.fold_in(seed, 0))
        context_noise = self.context.noise((batch_size, num_queries, value.shape[-1]), random.fold_in(seed, 1))
        if alignment_noise is not None:
            noise["alignment"] = alignment_noise
        if context_noise is not None:
            any_valid = memory["keys"].any_valid()
            if any_valid is not None:
                context_noise = ops.where(any_valid[..., None], context_noise, ops.zeros_like(context_noise))
            noise["context"] = context_noise
        if training and self.dropout:
            kept = random.uniform((batch_size, num_queries, num_keys), random.fold_in(seed, 2)) >= self.dropout
            noise["dropout"] = ops.cast(kept, self.compute_dtype) / (1.0 - self.dropout)
        return noise

    def attend(self, query, memory, noise, training=False):
        """Return a dictionary: context and mean (B, T, D), weights (B, T, S) and the posterior's parameters. Pure: no
        loss, no state.

        Args:
            query: (B, T, Dq).
            memory: Result of `prepare_memory`.
            noise: Result of `draw_noise`, or its slice for these queries.
            training: Whether the draw is one of training, at temperature 1.
        """
        keys = memory["keys"]
        logits = ops.cast(self.score.score(query, memory["projected_keys"]), "float32")
        weights = ops.cast(
            keys.softmax(self.alignment.perturb(logits, noise.get("alignment"), keys)), self.compute_dtype
        )
        kept = weights * noise["dropout"] if "dropout" in noise else weights
        mean = self.context.call(kept, memory["value"])
        if "context" not in noise:
            return {"context": mean, "mean": mean, "weights": weights, "parameters": {}}
        parameters = self.context.posterior_parameters(mean)
        temperature = self.draw_temperature(training, self.context.temperature)
        context = self.context.sample(mean, parameters, noise["context"], temperature)
        return {"context": context, "mean": mean, "weights": weights, "parameters": parameters}

    def account(self, attended, memory, query_mask=None, training=None):
        """Add the KL of all queries, if this attention has one: one `add_loss` a call.

        Args:
            attended: Result of `attend`, stacked over all queries.
            memory: Result of `prepare_memory`.
            query_mask: Boolean (B, T) or `None`.
            training: The call's `training`.
        """
        if not self.context.has_divergence:
            return
        mean = attended["mean"]
        parameters = attended["parameters"] or self.context.posterior_parameters(mean)
        divergence = self.context.divergence(mean, parameters, memory["prior_mean"])  # (B, T)
        valid = memory["keys"].any_valid()
        if query_mask is not None:
            valid = query_mask if valid is None else ops.logical_and(valid, query_mask)
        self.add_divergence(divergence, valid, entries=mean.shape[-1], training=training)

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
    ):
        check_mask("query_mask", query_mask, (query.shape[0], query.shape[1]), "(B, T)")
        mask = combine_masks(query, value, value_mask, key_mask, attention_mask, use_causal_mask)
        memory = self.prepare_memory(value, key, mask)
        shape = ops.shape(query)
        noise = self.draw_noise(shape[0], shape[1], memory, training)
        attended = self.attend(query, memory, noise, training)
        self.account(attended, memory, query_mask, training)
        if return_attention_scores:
            return attended["context"], attended["weights"]
        return attended["context"]

    def posterior_distribution(
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
    ):
        """Return q(context | query, value), a TensorFlow Probability distribution of batch shape (B, T) and event shape
        (D,).

        The arguments are those of the call; the layer must be built. For a deterministic context it is the point mass
        at the context.
        """
        mean, parameters, _ = self._posterior(query, value, key, value_mask, key_mask, attention_mask, use_causal_mask)
        return self.context.distribution(mean, parameters)

    def prior_distribution(
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
    ):
        """Return p(context), a TensorFlow Probability distribution of batch shape (B, T) and event shape (D,).

        Raises:
            ValueError: If the context is deterministic: it has no prior.
        """
        if not self.context.has_divergence:
            raise ValueError(
                'This attention has no prior: its context is deterministic. Use context="gaussian". '
                f"Received: context={type(self.context).__name__}"
            )
        mean, _, memory = self._posterior(query, value, key, value_mask, key_mask, attention_mask, use_causal_mask)
        return self.context.prior_distribution(mean, memory["prior_mean"])

    def _posterior(self, query, value, key, value_mask, key_mask, attention_mask, use_causal_mask):
        query, value, key = (None if x is None else ops.cast(x, self.compute_dtype) for x in (query, value, key))
        self.require_built()
        mask = combine_masks(query, value, value_mask, key_mask, attention_mask, use_causal_mask)
        memory = self.prepare_memory(value, key, mask)
        mean = self.attend(query, memory, {})["mean"]
        return mean, self.context.posterior_parameters(mean), memory

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        return (*query_shape[:-1], value_shape[-1])

    def compute_output_spec(self, query, value, key=None, return_attention_scores=False, **kwargs):
        context = keras.KerasTensor(self.compute_output_shape(query.shape, value.shape), dtype=self.compute_dtype)
        if not return_attention_scores:
            return context
        return context, keras.KerasTensor((*query.shape[:-1], value.shape[-2]), dtype=self.compute_dtype)

    def compute_mask(self, query, previous_mask=None):
        return previous_mask[0] if isinstance(previous_mask, (list, tuple)) else previous_mask

    def get_config(self):
        return {
            **super().get_config(),
            **self.stochastic_config(),
            "score": keras.saving.serialize_keras_object(self.score),
            "alignment": keras.saving.serialize_keras_object(self.alignment),
            "context": keras.saving.serialize_keras_object(self.context),
            "dropout": self.dropout,
        }


def combine_masks(query, value, value_mask, key_mask, attention_mask, use_causal_mask):
    """Return the boolean mask that broadcasts to (B, T, S), or `None` where nothing is masked.

    Raises:
        ValueError: If a mask has the wrong rank or a length that cannot match.
    """
    mask = None
    for name, padding in (("value_mask", value_mask), ("key_mask", key_mask)):
        check_mask(name, padding, (value.shape[0], value.shape[1]), "(B, S)")
        if padding is not None:
            mask = _both(mask, ops.cast(padding, "bool")[:, None, :])
    check_mask("attention_mask", attention_mask, (query.shape[0], query.shape[1], value.shape[1]), "(B, T, S)")
    if attention_mask is not None:
        mask = _both(mask, ops.cast(attention_mask, "bool"))
    if use_causal_mask:
        rows, columns = ops.arange(ops.shape(query)[1]), ops.arange(ops.shape(value)[1])
        mask = _both(mask, (rows[:, None] >= columns[None, :])[None])
    return mask


def _both(first, second):
    return second if first is None else ops.logical_and(first, second)


def check_mask(name, mask, expected, meaning):
    """Raise ValueError if a mask, unless it is `None`, cannot have the expected shape."""
    if mask is None:
        return
    shape = tuple(mask.shape)
    fits = len(shape) == len(expected) and all(
        None in pair or pair[0] == pair[1] or pair[0] == 1 for pair in zip(shape, expected, strict=True)
    )
    if not fits:
        raise ValueError(f"`{name}` must have shape {meaning}, here {expected}. Received: {name}.shape={shape}")
