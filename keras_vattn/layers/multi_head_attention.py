from functools import partial

import keras
from keras import ops

from keras_vattn.layers.attention_axes import AttentionAxes
from keras_vattn.layers.multi_head_mixin import MultiHeadMixin
from keras_vattn.support import keras_private
from keras_vattn.support.keras_private import bind_call
from keras_vattn.support.masks import check_mask, fits
from keras_vattn.support.products import project


@keras.saving.register_keras_serializable(package="keras_vattn")
class MultiHeadAttention(MultiHeadMixin, keras.layers.MultiHeadAttention):
    """`keras.layers.MultiHeadAttention` whose weights can be random variables.

    Vaswani et al. 2017, section 3.2; Fan et al. 2020, section 3. With `alignment="softmax"` this is the layer of Keras:
    the same arguments, outputs, masks, errors, and weights that load in either direction. With another alignment
    training draws the weights, for every head, query and example anew, and inference takes softmax(phi), which at valid
    queries gives the outputs of the Keras layer with the same weights. With `use_bias` each W adds a bias.

    The weights file of the Keras layer loads into this one whatever the alignment; a contextual prior has weights of
    its own, which the file lacks (`load_weights(path, skip_mismatch=True)`) and which come first in `weights`. Padding
    must be finite, as in Keras. The log shows the KL, and where the alignment cannot meet its prior (a Weibull never
    does) the KL above its floor, the part that training can change.

    Formula:
        phi_(t,s)^h = ((W_q^h "query"_t)^T W_k^h "key"_s) / sqrt("key_dim"), quad h = 1, ..., "num_heads"
        w_t^h ~ q^h = "alignment"(phi_t^h), quad "output"_t = sum_h W_o^h sum_s w_(t,s)^h W_v^h "value"_s
        "loss" = "kl_weight" * "kl_annealing" * 1/B sum_(b,h,t) "KL"(q^h || p^h)

    Args:
        num_heads: Number of heads.
        key_dim: Width of a head's query and key.
        value_dim: Width of a head's value, or `None` for `key_dim`. Defaults to `None`.
        dropout: Rate of dropout on the weights in training, after the draw. Defaults to 0.0.
        use_bias: As in Keras, like `output_shape` and `attention_axes`. Defaults to `True`.
        alignment: As in `keras_vattn.Attention`. Defaults to `"softmax"`.
        prior: `None` for no KL, `"fixed"`, `"contextual"` or a `Prior`. A contextual prior reads the projected keys of
            a head. Defaults to `None`.
        per_head_prior: Whether a contextual prior has one network for each head, not one for all. Defaults to `False`.
        query_chunk_size: Number of queries in a chunk, `"auto"`, or `None` for no chunks. Two chunks are computed at
            once, nothing of size T times S is stored, and the gradient recomputes each chunk: memory grows with S
            alone. Draws depend on the seed and the size of a chunk. It needs one attention axis. With `"auto"` calls
            of fewer than 2^24 scores an example, of unknown lengths, or with `return_attention_scores=True` have no
            chunks. Defaults to `None`.
        **kwargs: Arguments of `keras_vattn.StochasticLayer` (`kl_weight`, `seed`, ...), and the other arguments of
            `keras.layers.MultiHeadAttention`: `use_gate` needs Keras 3.14, `sliding_window` Keras 3.15, and
            `flash_attention`, which computes no weights, `alignment="softmax"`.

    Call arguments:
        query: (B, T, Dq), or with more axes (B, ..., Dq); `attention_axes` are the axes that are attended over.
        value: (B, S, Dv).
        key: (B, S, Dk), `value` where it is `None`.
        query_mask: Boolean (B, T), in general of the axes of the query but the last. A masked query adds no KL.
        value_mask: Boolean (B, S), in general of the axes of the value but the last. A masked position has weight,
            gradient and KL exactly 0, in every head.
        key_mask: Boolean (B, S), combined with `value_mask`.
        attention_mask: Boolean (B, T, S), or (B, H, T, S) for a mask of each head, or (T, S) for all examples, or what
            broadcasts to it, combined with the other masks.
        return_attention_scores: Whether to return the weights too, before dropout. Defaults to `False`.
        training: Whether to draw and to drop out. At inference the weights are softmax(phi), except under
            `keras_vattn.posterior_draws`.
        use_causal_mask: Whether query t sees only the positions up to t, of one attention axis. Defaults to `False`.
        posterior_logits: (B, H, T, S), or (B, 1, T, S) or (B, T, S) for all heads, from an inference network that may
            see the target, or `None`. With them q = alignment(posterior_logits), p = alignment(phi).

    Returns:
        The output (B, T, Dq), or (B, T, *output_shape), and with `return_attention_scores=True` the weights (B, H, T,
        S). A row without a valid key has weights 0.

    Raises:
        ValueError: As `keras.layers.MultiHeadAttention`; for unknown names, a prior or posterior logits for a
            deterministic alignment, posterior logits beside a prior or of the wrong shape, a prior for another number
            of heads, and flash attention with another alignment than softmax.

    Example:

    >>> layer = keras_vattn.MultiHeadAttention(num_heads=2, key_dim=4, alignment="weibull", prior="contextual")
    >>> query, value = keras.ops.ones((3, 5, 8)), keras.ops.ones((3, 7, 8))
    >>> output, weights = layer(query, value, return_attention_scores=True, training=True)
    >>> output.shape, weights.shape, len(layer.losses)
    (TensorShape([3, 5, 8]), TensorShape([3, 2, 5, 7]), 1)
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        dropout=0.0,
        use_bias=True,
        output_shape=None,
        attention_axes=None,
        *,
        alignment="softmax",
        prior=None,
        per_head_prior=False,
        query_chunk_size=None,
        **kwargs,
    ):
        super().__init__(
            num_heads=num_heads,
            key_dim=key_dim,
            value_dim=value_dim,
            dropout=dropout,
            use_bias=use_bias,
            output_shape=output_shape,
            attention_axes=attention_axes,
            alignment=alignment,
            prior=prior,
            per_head_prior=per_head_prior,
            query_chunk_size=query_chunk_size,
            **kwargs,
        )

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
        self.check_posterior_logits(posterior_logits, query, value)
        self._check_position_masks(query, use_causal_mask)
        size = self.multi_head_chunk_size(ops.shape(query), ops.shape(value), return_attention_scores)
        if self.is_softmax and size is None and AttentionAxes(self.attention_axes, len(query.shape)).is_plain:
            return super().call(
                query,
                value,
                key=key,
                query_mask=query_mask,
                value_mask=value_mask,
                key_mask=key_mask,
                attention_mask=attention_mask,
                return_attention_scores=return_attention_scores,
                training=training,
                use_causal_mask=use_causal_mask,
            )
        # What follows is Keras's `call`, which hands on neither the mask of the queries nor posterior logits, and makes
        # masks of (B, T, D) alone.
        self._check(query, value, key, query_mask, value_mask, key_mask, attention_mask)
        key = value if key is None else key
        masks = None if size is None else self._chunk_masks(query, value_mask, key_mask, attention_mask)
        for x in (query, value, key):
            keras_private.set_mask(x, None)
        num_leading = len(query.shape) - 1
        gate = project(keras_private.gate_of(self), query, num_leading) if self.use_gate else None
        pairs = (self.query_dense, query), (self.key_dense, key), (self.value_dense, value)
        heads = [project(dense, x, num_leading) for dense, x in pairs]
        if size is not None:
            options = query_mask, posterior_logits, use_causal_mask, self.sliding_window
            output, weights = self._in_chunks(heads, masks, size, training, *options), None
        else:
            mask = self.combined_mask(query, value, value_mask, key_mask, attention_mask, use_causal_mask)
            options = {"query_mask": query_mask, "posterior_logits": posterior_logits}
            output, weights = self._compute_attention(*heads, mask, training, return_attention_scores, **options)
        output = project(self.output_dense, output if gate is None else ops.multiply(output, gate), num_leading)
        if query_mask is not None:
            keras_private.set_mask(output, query_mask)
        return (output, weights) if return_attention_scores else output

    def _chunk_masks(self, query, value_mask, key_mask, attention_mask):
        """Return the masks of the call, each by itself, of the rank of the logits."""
        masks = [x[:, None] for x in (value_mask, key_mask) if x is not None]
        masks += [] if attention_mask is None else [attention_mask]
        query_mask = keras_private.mask_of(query)
        if self.is_softmax and query_mask is not None:
            # In the layer of Keras a padded query sees nothing.
            masks.append(query_mask[:, :, None])
        axes = AttentionAxes((1,), 3)
        return [axes.expand_mask(x) for x in masks]

    def _check_position_masks(self, query, use_causal_mask):
        """Raise ValueError for a mask of the order of keys that have none."""
        axes, window = AttentionAxes(self.attention_axes, len(query.shape)), self.sliding_window
        if (use_causal_mask and axes.count != 1) or (window is not None and not axes.is_plain):
            raise ValueError(
                "`use_causal_mask` needs one attention axis, and `sliding_window` that of (B, T, D): pass an "
                f"`attention_mask`. Received: query.shape={tuple(query.shape)}, attention_axes={self.attention_axes}, "
                f"use_causal_mask={use_causal_mask}, sliding_window={window}"
            )

    def _check(self, query, value, key, query_mask, value_mask, key_mask, attention_mask):
        """Raise ValueError for shapes that do not fit; with softmax Keras raises its own errors."""
        rank, axes = len(query.shape), AttentionAxes(self.attention_axes, len(query.shape))
        batch_shape = lambda x: tuple(x.shape[axis] for axis in axes.batch_axes)  # noqa: E731
        for name, x in (("value", value), ("key", value if key is None else key)):
            if rank < 3 or len(x.shape) != rank or not fits(batch_shape(x), batch_shape(query)):
                raise ValueError(
                    f"`query` and `{name}` must have as many axes, at least 3, and be equal in those that are not "
                    f"attended over. Received: query.shape={tuple(query.shape)}, {name}.shape={tuple(x.shape)}"
                )
        if key is not None and not fits(key.shape[:-1], value.shape[:-1]):
            raise ValueError(
                "`key` and `value` must have equal batch sizes and lengths. "
                f"Received: key.shape={tuple(key.shape)}, value.shape={tuple(value.shape)}"
            )
        check_mask("query_mask", query_mask, query.shape[:-1], "(B, T)")
        for name, mask in (("value_mask", value_mask), ("key_mask", key_mask)):
            check_mask(name, mask, value.shape[:-1], "(B, S)")
        if attention_mask is not None and axes.batch_axes == (0,):
            batch, heads, *attended = axes.logits_shape(self.num_heads, query.shape, value.shape)
            # One for all examples, and one for each head, are masks of Keras too.
            choices = ((batch, heads, *attended), attended)
            if not any(fits(attention_mask.shape, choice, broadcast=True) for choice in choices):
                check_mask("attention_mask", attention_mask, (batch, *attended), "(B, T, S) or (B, H, T, S)")

    def compute_output_spec(self, *arguments, **options):
        call_arguments = bind_call(partial(MultiHeadAttention.call, self), arguments, options)
        query, value, key = (call_arguments[name] for name in ("query", "value", "key"))
        self.check_posterior_logits(call_arguments["posterior_logits"], query, value)
        self._check_position_masks(query, call_arguments["use_causal_mask"])
        if not self.is_softmax:
            masks = (call_arguments[name] for name in ("query_mask", "value_mask", "key_mask", "attention_mask"))
            self._check(query, value, key, *masks)
        output = super().compute_output_spec(query, value, key)
        self.multi_head_chunk_size(query.shape, value.shape, call_arguments["return_attention_scores"])
        if not call_arguments["return_attention_scores"]:
            return output
        # Keras takes the keys to be as many as the queries.
        shape = AttentionAxes(self.attention_axes, len(query.shape)).logits_shape(
            self.num_heads, query.shape, value.shape
        )
        return output, keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self):
        # An older Keras lacks both.
        return {"sliding_window": self.sliding_window, "use_gate": self.use_gate, **super().get_config()}
