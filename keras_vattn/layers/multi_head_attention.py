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
    """`keras.layers.MultiHeadAttention` whose attention weights can be random variables.

    See Vaswani et al. 2017, section 3.2, and Fan et al. 2020, section 3.

    - With `alignment="softmax"`, this layer equals the Keras layer. Arguments, outputs, masks and errors are the same.
    - With another alignment, training draws the attention weights of each head, query and example independently.
      Inference uses the softmax of the logits phi. So at inference, the outputs of valid queries equal the outputs of a
      Keras layer with the same variables.

    A weights file of the Keras layer loads into this layer with any alignment. With a contextual prior, use
    `load_weights(path, skip_mismatch=True)`, because the file lacks the weights of the prior. In `layer.weights`, the
    weights of the prior come first. With `alignment="softmax"`, the Keras layer also loads the file of this layer.

    Padding must be finite, as in Keras. The training log shows the KL. Some KLs cannot reach 0, for example from a
    Weibull posterior to a Gamma prior. For these KLs, the log also shows the KL minus its minimum.

    In the formula, h is a head, q^h is the distribution of its weights, and p^h is the prior. With `use_bias`, each
    projection W also has a bias.

    Formula:
        phi_(t,s)^h = ((W_q^h "query"_t)^T W_k^h "key"_s) / sqrt("key_dim"), quad h = 1, ..., "num_heads"
        w_t^h ~ q^h = "alignment"(phi_t^h), quad "output"_t = sum_h W_o^h sum_s w_(t,s)^h W_v^h "value"_s
        "loss" = "kl_weight" * "kl_annealing" * 1/B sum_(b,h,t) "KL"(q^h || p^h)

    Args:
        num_heads: Number of heads.
        key_dim: Width of a head's query and key.
        value_dim: Width of a head's value, or `None` for `key_dim`. Defaults to `None`.
        dropout: Dropout rate of the weights in training, applied after the draw. Defaults to 0.0.
        use_bias, output_shape, attention_axes: As in Keras, with the same defaults.
        alignment: As in `keras_vattn.Attention`. Defaults to `"softmax"`.
        prior: `"fixed"`, `"contextual"` or a `Prior`. With `None`, only posterior logits add a KL. A contextual prior
            reads the projected keys of a head. Defaults to `None`.
        per_head_prior: Whether a contextual prior has a separate network for each head. Defaults to `False`.
        query_chunk_size: Number of queries per chunk, `"auto"`, or `None` for no chunks. Chunks save memory: the layer
            stores no T x S array and computes at most two chunks at a time. The gradient recomputes each chunk. The
            draws depend on the chunk size. Chunks need inputs (B, T, D) and attention over axis 1 only. `"auto"` uses
            chunks only for 2^24 or more scores per example (H * T * S). With unknown lengths or
            `return_attention_scores=True`, `"auto"` uses no chunks. Defaults to `None`.
        **kwargs: Arguments of `keras_vattn.StochasticLayer` (`kl_weight`, `seed`, ...), and the other arguments of
            `keras.layers.MultiHeadAttention`. `use_gate` needs Keras 3.14 or newer, and `sliding_window` needs Keras
            3.15 or newer. `flash_attention` needs `alignment="softmax"`.

    Call arguments:
        query: (B, T, Dq), or (B, ..., Dq) with `attention_axes`, which selects the axes to attend over.
        value: (B, S, Dv).
        key: (B, S, Dk), or `None` to use `value`.
        query_mask: Boolean, (B, T) or the shape of the query without its last axis. A masked query adds no KL.
        value_mask: Boolean, (B, S) or the shape of the value without its last axis. A masked position has weight,
            gradient and KL exactly 0, in every head.
        key_mask: Boolean (B, S), combined with `value_mask`.
        attention_mask: Boolean (B, T, S), (B, H, T, S) for one mask per head, (T, S) for all examples, or any shape
            that broadcasts to these shapes. The layer combines all masks.
        return_attention_scores: Whether to return the weights before dropout as well. Defaults to `False`.
        training: Whether to draw samples and use dropout. At inference the weights are softmax(phi), except under
            `keras_vattn.posterior_draws`.
        use_causal_mask: Whether query t attends only to the positions up to t. This needs a single attention axis.
            Defaults to `False`.
        posterior_logits: (B, H, T, S), or (B, 1, T, S) or (B, T, S) for all heads, or `None`. They come from an
            inference network, which may read the target. With posterior logits, q = alignment(posterior_logits) and p =
            alignment(phi).

    Returns:
        The output (B, T, Dq), or (B, T, *output_shape), and the weights (B, H, T, S) with
        `return_attention_scores=True`. A query without a valid key has weights 0.

    Raises:
        ValueError: As in `keras.layers.MultiHeadAttention`.
        ValueError: If a name is unknown, or the prior has a different number of heads.
        ValueError: If a prior and posterior logits are combined.
        ValueError: If a prior or posterior logits are used with a deterministic alignment.
        ValueError: If the posterior logits have the wrong shape.
        ValueError: If `flash_attention` is used without softmax.

    Example:

    >>> layer = keras_vattn.MultiHeadAttention(
    ...     num_heads=2, key_dim=4, alignment="weibull", prior="contextual"
    ... )
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
        # `super().call` would drop the posterior logits and the query mask, so the KL would be wrong.
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
        """Return a list of the masks of a call, each with the rank of the logits."""
        masks = [x[:, None] for x in (value_mask, key_mask) if x is not None]
        masks += [] if attention_mask is None else [attention_mask]
        query_mask = keras_private.mask_of(query)
        if self.is_softmax and query_mask is not None:
            # The Keras layer also masks all keys of a padded query.
            masks.append(query_mask[:, :, None])
        axes = AttentionAxes((1,), 3)
        return [axes.expand_mask(x) for x in masks]

    def _check_position_masks(self, query, use_causal_mask):
        axes, window = AttentionAxes(self.attention_axes, len(query.shape)), self.sliding_window
        if (use_causal_mask and axes.count != 1) or (window is not None and not axes.is_plain):
            raise ValueError(
                "`use_causal_mask` needs one attention axis, and `sliding_window` needs inputs (B, T, D). Pass an "
                f"`attention_mask` instead. Received: query.shape={tuple(query.shape)}, "
                f"attention_axes={self.attention_axes}, use_causal_mask={use_causal_mask}, sliding_window={window}"
            )

    def _check(self, query, value, key, query_mask, value_mask, key_mask, attention_mask):
        rank, axes = len(query.shape), AttentionAxes(self.attention_axes, len(query.shape))
        batch_shape = lambda x: tuple(x.shape[axis] for axis in axes.batch_axes)  # noqa: E731
        for name, x in (("value", value), ("key", value if key is None else key)):
            if rank < 3 or len(x.shape) != rank or not fits(batch_shape(x), batch_shape(query)):
                raise ValueError(
                    f"`query` and `{name}` must have the same rank, at least 3. Only attention axes and the last axis "
                    f"may differ in length. Received: query.shape={tuple(query.shape)}, {name}.shape={tuple(x.shape)}"
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
        # Keras would return a wrong shape for different numbers of queries and keys.
        shape = AttentionAxes(self.attention_axes, len(query.shape)).logits_shape(
            self.num_heads, query.shape, value.shape
        )
        return output, keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self):
        # Older Keras versions omit these two arguments from the config.
        return {"sliding_window": self.sliding_window, "use_gate": self.use_gate, **super().get_config()}
