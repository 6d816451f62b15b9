import keras
import tensorflow as tf
from keras import ops

from keras_vattn import alignments
from keras_vattn.alignments import AlignmentInputs, DenseKeys
from keras_vattn.alignments.variational_alignment import as_finite_float32
from keras_vattn.layers.alignment_layer import AlignmentLayer
from keras_vattn.layers.attention_axes import AttentionAxes
from keras_vattn.support.masks import both, fits
from keras_vattn.support.sublayers import claim, serialize_sublayer
from keras_vattn.support.validation import positive_integer


class MultiHeadMixin(AlignmentLayer):
    """Mixin that gives a multi-head attention of Keras, or a subclass of it, an alignment and a prior.

    The mixin replaces `_compute_attention`, the step from projected queries, keys and values to the heads' outputs, and
    reads nothing but its arguments. A subclass with a `call` of its own, such as the cached attention of a language
    model (`keras_hub.layers.CachedMultiHeadAttention`), keeps this `call`. `keras_vattn.MultiHeadAttention` is this
    mixin with `keras.layers.MultiHeadAttention`, and has the formula.

    Args:
        num_heads: Number of heads.
        key_dim: Width of a head's query and key.
        alignment: As in `keras_vattn.MultiHeadAttention`, like all that follow. Defaults to `"softmax"`.
        prior: `None` for no KL. A contextual prior reads the projected keys of a head. Defaults to `None`.
        per_head_prior: Whether a contextual prior has one network for each head. Defaults to `False`.
        **kwargs: `kl_weight`, `kl_annealing` and `kl_reduction`, and the arguments of the Keras layer.

    Raises:
        ValueError: As `keras_vattn.MultiHeadAttention`.

    Example:

    >>> @keras.saving.register_keras_serializable(package="mine")
    ... class SelfAttention(keras_vattn.MultiHeadMixin, keras.layers.MultiHeadAttention):
    ...     def call(self, x, attention_mask=None, training=None):
    ...         heads = self.query_dense(x), self.key_dense(x), self.value_dense(x)
    ...         return self.output_dense(self._compute_attention(*heads, attention_mask, training)[0])
    ...     def build(self, x_shape):
    ...         super().build(x_shape, x_shape)
    ...     def compute_output_spec(self, x, attention_mask=None, training=None):
    ...         return keras.KerasTensor(x.shape, dtype=self.compute_dtype)
    >>> layer = SelfAttention(2, 4, alignment="weibull", prior="contextual")
    >>> layer(keras.ops.ones((3, 5, 8)), training=True).shape, len(layer.losses)
    (TensorShape([3, 5, 8]), 1)
    """

    def __init__(self, num_heads, key_dim, alignment="softmax", prior=None, per_head_prior=False, **kwargs):
        num_heads, key_dim = positive_integer("num_heads", num_heads), positive_integer("key_dim", key_dim)
        if "value_dim" in kwargs:
            kwargs["value_dim"] = positive_integer("value_dim", kwargs["value_dim"], optional=True)
        alignment = alignments.get(alignment)
        is_softmax = type(alignment) is alignments.Softmax
        super().__init__(num_heads=num_heads, key_dim=key_dim, draws_noise=not is_softmax, **kwargs)
        if kwargs.get("flash_attention") and not is_softmax:
            raise ValueError(
                'Flash attention computes no weights to draw: use it with alignment="softmax". '
                f"Received: flash_attention=True, alignment={type(alignment).__name__}"
            )
        self.add_alignment(alignment, prior, per_head_prior)

    def add_alignment(self, alignment, prior, per_head_prior=False, name=None):
        """Take the alignment and the prior: arguments as in the class, and the name of the layer in the log."""
        self.is_softmax = type(alignment) is alignments.Softmax
        heads = {"num_heads": self.num_heads, "per_head_prior": per_head_prior}
        self.set_alignment(alignments.VariationalAlignment(alignment, prior, dtype=self.dtype_policy, **heads))
        self.per_head_prior = getattr(self.alignment_prior, "num_heads", None) is not None
        if self.is_stochastic:
            self.track_divergence(self.alignment_prior is not None, name)

    def build(self, query_shape, value_shape, key_shape=None):
        claim(self, "prior", self.alignment_prior)
        super().build(query_shape, value_shape, key_shape)
        self.build_prior()

    def build_prior(self):
        """Create the weights of the prior, if there is one."""
        if self.alignment_prior is not None and not self.alignment_prior.built:
            self.alignment_prior.build((None, self.num_heads, None, self.key_dim))

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
        if self.is_softmax:
            return super()._compute_attention(
                query, key, value, attention_mask, training, return_attention_scores, use_causal_mask
            )
        if use_causal_mask:
            axes = AttentionAxes(self.attention_axes, len(query.shape) - 1)
            causal = axes.expand_mask(self._compute_causal_mask(query, value))
            attention_mask = both(axes.expand_mask(attention_mask), causal)
        axes, scored = self.score_heads(query, key, attention_mask, posterior_logits)
        shape = axes.logits_shape(self.num_heads, ops.shape(query), ops.shape(key))
        noise = self.draw_noise(ops.shape(scored.logits), training)
        weights = ops.cast(self.variational.weights(scored, noise), self.compute_dtype)
        query_mask = None if query_mask is None else axes.fold_queries(query_mask)
        divergence = self.divergence_of(scored, noise, scored.keys, query_mask, training, head_axis=-2)
        self.add_divergence(**divergence, training=training)
        kept = weights * noise["dropout"] if "dropout" in noise else weights
        context = axes.from_heads(ops.matmul(kept, axes.by_head(value)), shape)
        return context, axes.unfold(weights, shape)

    def score_heads(self, query, key, mask, posterior_logits=None):
        """Return the axes that are attended over, and the inputs of the alignment, (..., H, T, S).

        Args:
            query: Projected queries, (B, ..., H, D).
            key: Projected keys, (B, ..., H, D).
            mask: Boolean, of the rank of the logits or without some of the axes before the attention axes, or `None`.
            posterior_logits: As in the call.
        """
        axes = AttentionAxes(self.attention_axes, len(query.shape) - 1)
        shape = axes.logits_shape(self.num_heads, ops.shape(query), ops.shape(key))
        query = ops.multiply(query, ops.cast(self._inverse_sqrt_key_dim, query.dtype))
        query, key = axes.by_head(query), axes.by_head(key)
        keys = DenseKeys(axes.fold_mask(axes.expand_mask(mask), shape))
        logits = ops.cast(tf.matmul(query, key, transpose_b=True), "float32")
        log_psi = self.variational.log_psi(key, keys)
        return axes, AlignmentInputs(logits, keys, log_psi, self._by_head(posterior_logits, axes, shape))

    def joined_mask(self, query, value, value_mask, key_mask, attention_mask, use_causal_mask):
        """Return which query sees which key, of the rank of the logits, or `None`; the mask of the queries is no part
        of it, since a masked query still attends."""
        axes = AttentionAxes(self.attention_axes, len(query.shape))
        masks = {"value_mask": value_mask, "key_mask": key_mask, "use_causal_mask": bool(use_causal_mask)}
        mask = axes.expand_mask(self._compute_attention_mask(query, value, **masks))
        return both(mask, axes.expand_mask(attention_mask))

    def _scored(self, arguments, options):
        # A `call` of a subclass may have other arguments: what it has of these counts.
        given = self._bind(arguments, options)
        query, value = given["query"], given["value"]
        key, posterior_logits = given.get("key"), given.get("posterior_logits")
        self.check_posterior_logits(posterior_logits, query, value)
        names = ("value_mask", "key_mask", "attention_mask", "use_causal_mask")
        mask = self.joined_mask(query, value, *(given.get(name) for name in names))
        projected = self.query_dense(query), self.key_dense(value if key is None else key)
        return self.score_heads(*projected, mask, posterior_logits)[1]

    def check_posterior_logits(self, posterior_logits, query, value):
        """Raise ValueError if posterior logits, unless they are `None`, have no place here or another shape."""
        if posterior_logits is None:
            return
        self.variational.require_place_for_posterior_logits(posterior_logits)
        axes = AttentionAxes(self.attention_axes, len(query.shape))
        shape, expected = tuple(posterior_logits.shape), axes.logits_shape(self.num_heads, query.shape, value.shape)
        before, after = expected[: len(axes.others)], expected[len(axes.others) + 1 :]
        choices = (expected, (*before, 1, *after), (*before, *after))
        if not any(fits(shape, choice) for choice in choices):
            raise ValueError(
                f"`posterior_logits` must have shape (B, H, T, S), here {expected}, or (B, 1, T, S) or (B, T, S) for "
                f"all heads. Received: posterior_logits.shape={shape}"
            )

    def _by_head(self, posterior_logits, axes, shape):
        if posterior_logits is None:
            return None
        if len(posterior_logits.shape) < len(shape):
            posterior_logits = ops.expand_dims(posterior_logits, len(axes.others))
        # An alignment sees logits of one shape: every head has draws of its own, also from logits that it shares.
        return axes.fold(ops.broadcast_to(as_finite_float32(posterior_logits), shape))

    def draw_noise(self, shape, training=False):
        """Return the noise of a call, a dictionary, empty where the call does not draw.

        Args:
            shape: Shape of the logits, (..., H, T, S).
            training: The call's `training`.
        """
        seed = self.noise_seed(training)
        return {} if seed is None else self.draw_alignment(shape, seed, training)

    def get_config(self):
        return {
            **super().get_config(),
            **self.stochastic_config(),
            "alignment": keras.saving.serialize_keras_object(self.alignment),
            "prior": serialize_sublayer(self.alignment_prior),
            "per_head_prior": self.per_head_prior,
        }
