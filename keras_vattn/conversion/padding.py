"""Exclude padding queries of converted self-attention from the KL. A mask hides padding from all queries."""

import contextvars
import functools
import inspect

from keras import ops

from keras_vattn.support.masks import both

_IS_SELF_ATTENTION = contextvars.ContextVar("attends_to_itself", default=False)


class HeadsWithPadding:
    """Mixin for converted multi-head attention. In self-attention, it masks the queries at padding positions."""

    def __call__(self, *arguments, **options):
        # Compare query and value here: after Keras casts them, they are always different objects.
        token = _IS_SELF_ATTENTION.set(self._is_self_attention(arguments, options))
        try:
            return super().__call__(*arguments, **options)
        finally:
            _IS_SELF_ATTENTION.reset(token)

    def _is_self_attention(self, arguments, options):
        try:
            values = inspect.signature(self.call).bind_partial(*arguments, **options).arguments
        except TypeError:
            # `super().__call__` will raise the error.
            return False
        # A call with a cache also attends to cached positions.
        return (
            values.get("query") is not None and values["query"] is values.get("value") and values.get("cache") is None
        )

    def _compute_attention(self, query, key, value, attention_mask=None, *arguments, query_mask=None, **options):
        if query_mask is None and attention_mask is not None and _IS_SELF_ATTENTION.get() and len(query.shape) == 4:
            query_mask = _visible_positions(attention_mask, query)
        return super()._compute_attention(
            query, key, value, attention_mask, *arguments, query_mask=query_mask, **options
        )

    def _in_chunks(self, heads, masks, size, training, query_mask, posterior_logits, is_causal, window=None):
        if query_mask is None and _IS_SELF_ATTENTION.get():
            query, query_masks = heads[0], [x for x in masks if x.shape[-2] != 1]
            if query_masks:
                positions = ops.arange(ops.shape(query)[1])
                distance = positions[:, None] - positions
                query_masks.append(distance >= 0 if is_causal else None)
                query_masks.append(None if window is None else ops.abs(distance) < window)
                query_mask = _visible_positions(functools.reduce(both, query_masks), query)
            for mask in (x for x in masks if x.shape[-2] == 1):
                query_mask = both(query_mask, _visible_positions(mask, query))
        return super()._in_chunks(heads, masks, size, training, query_mask, posterior_logits, is_causal, window)


def _visible_positions(mask, query):
    """Return a boolean (B, T): whether any query can attend to each position."""
    visible = ops.any(ops.cast(mask, "bool"), axis=tuple(range(1, len(mask.shape) - 1)))
    return ops.broadcast_to(visible, ops.shape(query)[:2])
