import inspect
import math

import keras
import tensorflow as tf
from keras import ops

from keras_vattn import alignments, random
from keras_vattn.alignments import AlignmentInputs, DenseKeys
from keras_vattn.alignments.variational_alignment import as_finite_float32
from keras_vattn.draws.request import Seeds, training_requested
from keras_vattn.layers.attention_axes import AttentionAxes
from keras_vattn.layers.chunked_attention import ChunkedAttention, chunk_size
from keras_vattn.support import keras_private
from keras_vattn.support.masks import both, fits
from keras_vattn.support.sublayers import claim, serialize_sublayer
from keras_vattn.support.validation import positive_integer

# Name: (version of Keras that introduced the argument, default that keeps the behaviour of older versions).
NEWER_ARGUMENTS = {"use_gate": ("3.14", False), "sliding_window": ("3.15", None)}


class MultiHeadMixin(ChunkedAttention):
    """Mixin that adds an alignment and a prior to `keras.layers.MultiHeadAttention` or a subclass of it.

    The mixin replaces the method `_compute_attention` but not `call`. So the Keras layer may define its own `call`, as
    `keras_hub.layers.CachedMultiHeadAttention` does. `keras_vattn.MultiHeadAttention` combines the mixin with
    `keras.layers.MultiHeadAttention`, and documents the formula.

    Args:
        num_heads: Number of heads.
        key_dim: Width of a head's query and key.
        alignment: As in `keras_vattn.MultiHeadAttention`. Defaults to `"softmax"`.
        prior: As in `keras_vattn.MultiHeadAttention`. Defaults to `None`.
        per_head_prior: Whether a contextual prior has a separate network for each head. Defaults to `False`.
        query_chunk_size: As in `keras_vattn.MultiHeadAttention`. Defaults to `None`.
        **kwargs: Arguments of `keras_vattn.StochasticLayer` (`kl_weight`, `seed`, ...) and of the Keras layer.

    Raises:
        ValueError: As in `keras_vattn.MultiHeadAttention`.

    Example:

    >>> @keras.saving.register_keras_serializable(package="mine")
    ... class SelfAttention(keras_vattn.MultiHeadMixin, keras.layers.MultiHeadAttention):
    ...     def call(self, x, attention_mask=None, training=None):
    ...         heads = self.query_dense(x), self.key_dense(x), self.value_dense(x)
    ...         attended, _ = self._compute_attention(*heads, attention_mask, training)
    ...         return self.output_dense(attended)
    ...     def build(self, x_shape):
    ...         super().build(x_shape, x_shape)
    ...     def compute_output_spec(self, x, attention_mask=None, training=None):
    ...         return keras.KerasTensor(x.shape, dtype=self.compute_dtype)
    >>> layer = SelfAttention(2, 4, alignment="weibull", prior="contextual")
    >>> layer(keras.ops.ones((3, 5, 8)), training=True).shape, len(layer.losses)
    (TensorShape([3, 5, 8]), 1)
    """

    feature_arguments = ("query", "value", "key")

    def __init__(
        self, num_heads, key_dim, alignment="softmax", prior=None, per_head_prior=False, query_chunk_size=None, **kwargs
    ):
        num_heads, key_dim = positive_integer("num_heads", num_heads), positive_integer("key_dim", key_dim)
        if "value_dim" in kwargs:
            kwargs["value_dim"] = positive_integer("value_dim", kwargs["value_dim"], optional=True)
        alignment = alignments.get(alignment)
        is_softmax = type(alignment) is alignments.Softmax
        kwargs = _supported_arguments(kwargs)
        super().__init__(num_heads=num_heads, key_dim=key_dim, draws_noise=not is_softmax, **kwargs)
        self.flash_attention = kwargs.get("flash_attention")
        if self.flash_attention and not is_softmax:
            raise ValueError(
                'Flash attention supports only alignment="softmax". '
                f"Received: flash_attention=True, alignment={type(alignment).__name__}"
            )
        self.query_chunk_size = chunk_size(query_chunk_size)
        if query_chunk_size is not None and self.flash_attention:
            raise ValueError(
                "Flash attention uses its own chunks: set query_chunk_size=None. "
                f"Received: query_chunk_size={query_chunk_size}, flash_attention=True"
            )
        self.add_alignment(alignment, prior, per_head_prior)

    def add_alignment(self, alignment, prior, per_head_prior=False, name=None):
        """Set the alignment and the prior. `name` is the name in the log, or `None` for the name of the layer."""
        keras_private.require_multi_head()
        config = keras.layers.MultiHeadAttention.get_config(self)
        self.use_gate, self.sliding_window = config.get("use_gate", False), config.get("sliding_window")
        self.is_softmax = type(alignment) is alignments.Softmax
        heads = {"num_heads": self.num_heads, "per_head_prior": per_head_prior}
        self.set_alignment(alignments.VariationalAlignment(alignment, prior, dtype=self.dtype_policy, **heads))
        self.per_head_prior = getattr(self.alignment_prior, "num_heads", None) is not None
        if self.is_stochastic:
            self.track_divergence(self.alignment_prior is not None, name)

    def build(self, query_shape, value_shape, key_shape=None):
        claim(self, "prior", self.alignment_prior)
        if self.attention_axes is not None and not AttentionAxes(self.attention_axes, len(query_shape)).are_valid:
            raise ValueError(
                "`attention_axes` must be distinct axes of the inputs, and cannot include the last one. "
                f"Received: attention_axes={self.attention_axes}, query.shape={tuple(query_shape)}"
            )
        super().build(query_shape, value_shape, key_shape)
        self.build_prior()

    def build_prior(self):
        """Create the weights of the prior."""
        if self.alignment_prior is not None and not self.alignment_prior.built:
            self.alignment_prior.build((None, self.num_heads, None, self.key_dim))

    def __call__(self, *arguments, **options):
        # Without this copy, Keras would remove the masks of tensors that other layers still read.
        arguments, options = keras.tree.map_structure(keras_private.copy_masked, (arguments, options))
        return super().__call__(*arguments, **options)

    def _compute_attention(
        self,
        query,
        key,
        value,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
        use_causal_mask=False,
        query_mask=None,
        posterior_logits=None,
    ):
        size = self.multi_head_chunk_size(ops.shape(query), ops.shape(key), return_attention_scores, rank=4)
        if size is not None:
            masks = [] if attention_mask is None else [AttentionAxes((1,), 3).expand_mask(attention_mask)]
            heads = query, key, value
            return self._in_chunks(heads, masks, size, training, query_mask, posterior_logits, use_causal_mask), None
        if self.is_softmax:
            # Keras before 3.15 raises TypeError for this argument.
            causal = {"use_causal_mask": True} if use_causal_mask else {}
            return super()._compute_attention(
                query, key, value, attention_mask, training, return_attention_scores, **causal
            )
        if use_causal_mask:
            axes = AttentionAxes(self.attention_axes, len(query.shape) - 1)
            causal = axes.expand_mask(axes.position_mask(ops.shape(query), ops.shape(value), True))
            attention_mask = both(axes.expand_mask(attention_mask), causal)
        axes, scored = self.score_heads(query, key, attention_mask, posterior_logits)
        shape = axes.logits_shape(self.num_heads, ops.shape(query), ops.shape(key))
        noise = self.draw_alignment(ops.shape(scored.logits), self.draw_seeds(training))
        weights = ops.cast(self.variational.weights(scored, noise), self.compute_dtype)
        query_mask = None if query_mask is None else axes.fold_queries(query_mask)
        divergence = self.divergence_terms(scored, noise, scored.keys, query_mask, training, head_axis=-2)
        self.add_divergence(**divergence, training=training)
        weights_after_dropout = weights * noise["dropout"] if "dropout" in noise else weights
        context = axes.from_heads(tf.matmul(weights_after_dropout, axes.by_head(value)), shape)
        return context, axes.unfold(weights, shape)

    def multi_head_chunk_size(self, query_shape, key_shape, return_attention_scores, rank=3):
        """Return the number of queries per chunk, or `None`. `rank` is 4 for a projected query, otherwise 3."""
        if self.query_chunk_size is None:
            return None
        if len(query_shape) == rank and AttentionAxes(self.attention_axes, 3).axes == (1,):
            heads_of_chunk = self.num_heads if self.per_head_prior else 1
            lengths = query_shape[1], key_shape[1]
            return self.chunk_size_of(self.num_heads, *lengths, return_attention_scores, heads_of_chunk)
        if self.query_chunk_size == "auto":
            return None
        raise ValueError(
            "`query_chunk_size` needs inputs (B, T, D) and attention over axis 1 only. Received: "
            f"query_chunk_size={self.query_chunk_size}, query.shape={tuple(query_shape)}, "
            f"attention_axes={self.attention_axes}"
        )

    def _in_chunks(self, heads, masks, size, training, query_mask, posterior_logits, is_causal, window=None):
        """Return the outputs of the heads, (B, T, H, D). `heads` are projected queries, keys and values."""
        axes = AttentionAxes((1,), 3)
        query, key, value = (axes.by_head(x) for x in heads)
        query = ops.multiply(query, ops.cast(1.0 / math.sqrt(self.key_dim), query.dtype))
        shape = (*ops.shape(query)[:-1], ops.shape(key)[-2])
        inputs = [query], [key, value], [self._by_head(posterior_logits, axes, shape)]
        # A prior with one network per head needs all heads in a chunk.
        num_heads = 1 if self.per_head_prior else self.num_heads
        inputs = [[_heads_to_batch(x, num_heads) for x in each if x is not None] for each in inputs]

        def attend(queries, keys, entries, valid, chunk):
            key, value = keys
            logits = ops.cast(tf.matmul(*queries, key, transpose_b=True), "float32")
            scored = AlignmentInputs(logits, valid, self.variational.log_psi(key, valid), *entries)
            noise = self.draw_rows(ops.shape(logits), chunk.seeds, chunk.num_keys)
            if self.is_softmax:
                # Unlike `variational.weights`, this gives equal weights if all keys are masked, as Keras does.
                weights = tf.nn.softmax(valid.mask_out(logits))
            else:
                weights = self.variational.weights(scored, noise)
            weights = ops.cast(weights, self.compute_dtype)
            context = ops.matmul(weights * noise["dropout"] if "dropout" in noise else weights, value)
            return context, self.divergence_terms(scored, noise, valid, None, training, head_axis=-2, chunk=chunk)

        weights = [] if self.prior is None else self.prior.trainable_variables
        context, divergence = self.over_chunks(
            attend, size, inputs, masks, weights, training, query_mask, is_causal, window, num_heads
        )
        self.add_divergence(**divergence, training=training)
        return axes.from_heads(ops.reshape(context, (*shape[:-1], ops.shape(value)[-1])), shape)

    def score_heads(self, query, key, mask, posterior_logits=None):
        """Return the `AttentionAxes`, and the `AlignmentInputs` with logits (..., H, T, S).

        Args:
            query: Projected queries, (B, ..., H, D).
            key: Projected keys, (B, ..., H, D).
            mask: Boolean (..., T, S) or `None`. A mask of lower rank than the logits gets axes of length 1 before T.
            posterior_logits: As in `call`.
        """
        axes = AttentionAxes(self.attention_axes, len(query.shape) - 1)
        shape = axes.logits_shape(self.num_heads, ops.shape(query), ops.shape(key))
        query = ops.multiply(query, ops.cast(1.0 / math.sqrt(self.key_dim), query.dtype))
        query, key = axes.by_head(query), axes.by_head(key)
        keys = DenseKeys(axes.fold_mask(axes.expand_mask(mask), shape))
        logits = ops.cast(tf.matmul(query, key, transpose_b=True), "float32")
        log_psi = self.variational.log_psi(key, keys)
        return axes, AlignmentInputs(logits, keys, log_psi, self._by_head(posterior_logits, axes, shape))

    def combined_mask(self, query, value, value_mask, key_mask, attention_mask, use_causal_mask):
        """Combine all masks except the query mask into one with the rank of the logits, or `None` without masks."""
        axes = AttentionAxes(self.attention_axes, len(query.shape))
        mask = axes.expand_mask(attention_mask)
        for padding_mask in (value_mask, key_mask):
            mask = mask if padding_mask is None else both(mask, axes.expand_key_mask(padding_mask))
        window = self.sliding_window if axes.is_plain else None
        position_mask = axes.position_mask(ops.shape(query), ops.shape(value), use_causal_mask, window)
        return both(mask, axes.expand_mask(position_mask))

    def _scored(self, arguments, options):
        # Use `get`: a subclass may define a `call` without these arguments.
        call_arguments = self._bind(arguments, options)
        query, value = call_arguments["query"], call_arguments["value"]
        key, posterior_logits = call_arguments.get("key"), call_arguments.get("posterior_logits")
        self.check_posterior_logits(posterior_logits, query, value)
        names = ("value_mask", "key_mask", "attention_mask", "use_causal_mask")
        mask = self.combined_mask(query, value, *(call_arguments.get(name) for name in names))
        projected = self.query_dense(query), self.key_dense(value if key is None else key)
        return self.score_heads(*projected, mask, posterior_logits)[1]

    def check_posterior_logits(self, posterior_logits, query, value):
        """Raise ValueError if the posterior logits are not supported, or have the wrong shape."""
        if posterior_logits is None:
            return
        self.variational.require_place_for_posterior_logits(posterior_logits)
        axes = AttentionAxes(self.attention_axes, len(query.shape))
        shape, expected = tuple(posterior_logits.shape), axes.logits_shape(self.num_heads, query.shape, value.shape)
        before, after = expected[: len(axes.batch_axes)], expected[len(axes.batch_axes) + 1 :]
        choices = (expected, (*before, 1, *after), (*before, *after))
        if not any(fits(shape, choice) for choice in choices):
            raise ValueError(
                "`posterior_logits` must have shape (B, H, T, S) or, for all heads, (B, 1, T, S) or (B, T, S). "
                f"Expected: one of {choices}. Received: posterior_logits.shape={shape}"
            )

    def _by_head(self, posterior_logits, axes, shape):
        if posterior_logits is None:
            return None
        if len(posterior_logits.shape) < len(shape):
            posterior_logits = ops.expand_dims(posterior_logits, len(axes.batch_axes))
        # Without this broadcast, heads with the same logits would also have the same draws.
        return axes.fold(ops.broadcast_to(as_finite_float32(posterior_logits), shape))

    def draw_alignment(self, shape, seeds):
        if not self.is_softmax or seeds.dropout is None:
            return super().draw_alignment(shape, seeds)
        mask = ops.cast(random.dropout_mask(shape, min(self.dropout, 1.0 - 2**-23), seeds.dropout), self.compute_dtype)
        return {"dropout": mask / (1.0 - self.dropout) if self.dropout < 1.0 else ops.zeros_like(mask)}

    def draw_seeds(self, training):
        if not self.is_softmax:
            return super().draw_seeds(training)
        # With another seed, this layer would drop other weights than the Keras layer that it replaces.
        drops = self.dropout and (training or training_requested(self))
        return Seeds(dropout=random.dropout_seed(keras_private.dropout_of(self).seed_generator) if drops else None)

    def get_config(self):
        return {
            **super().get_config(),
            **self.stochastic_config(),
            "flash_attention": self.flash_attention,
            "alignment": keras.saving.serialize_keras_object(self.alignment),
            "prior": serialize_sublayer(self.alignment_prior),
            "per_head_prior": self.per_head_prior,
            "query_chunk_size": self.query_chunk_size,
        }


def _supported_arguments(arguments):
    """Return the arguments that the installed Keras supports. Raise ValueError if a newer argument is set."""
    supported = inspect.signature(keras.layers.MultiHeadAttention).parameters
    for name, (version, default) in NEWER_ARGUMENTS.items():
        if name not in supported and arguments.get(name, default) != default:
            raise ValueError(
                f"`{name}` needs Keras {version} or newer. Received: {name}={arguments[name]!r}, "
                f"keras {keras.__version__}"
            )
    return {name: x for name, x in arguments.items() if name in supported or name not in NEWER_ARGUMENTS}


def _heads_to_batch(x, num_heads):
    """Return x (B, H, ..., D) as (B * H, 1, ..., D), or unchanged if `num_heads` is 1."""
    return x if num_heads == 1 else ops.reshape(x, (-1, 1, *ops.shape(x)[2:]))
