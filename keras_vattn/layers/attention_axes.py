import math

from keras import ops

from keras_vattn.support.masks import both


class AttentionAxes:
    """Attention axes of a multi-head attention layer. The methods reshape tensors to (..., H, T, S) and back.

    An input has shape (B, ..., D). A projected input has an axis of heads before the last axis. An alignment needs one
    axis of queries and one axis of keys, so the methods fold several attention axes into one axis. All other axes are
    batch axes, and come before the heads.

    Args:
        axes: Attention axes of an input. Negative axes count from the end. `None` selects all axes except the first
            and last.
        rank: Rank of an input.
    """

    def __init__(self, axes, rank):
        self.axes = tuple(range(1, rank - 1)) if axes is None else tuple(axis % rank for axis in axes)
        self.batch_axes = tuple(axis for axis in range(rank - 1) if axis not in self.axes)
        self.count = len(self.axes)
        inside = axes is None or all(-rank <= axis < rank for axis in axes)
        self.are_valid = inside and self.count > 0 and len({*self.axes, rank - 1}) == self.count + 1
        # Keras combines masks only for inputs (B, T, D).
        self.is_plain = rank == 3 and self.axes == (1,)
        # Permutation of a projected tensor: batch axes, heads, attention axes, width.
        self.order = (*self.batch_axes, rank - 1, *self.axes, rank)

    def logits_shape(self, num_heads, query_shape, value_shape):
        """Return the shape of the logits, (..., H, T1, T2, S1, S2)."""
        batch_sizes = (query_shape[axis] for axis in self.batch_axes)
        return (*batch_sizes, num_heads, *(shape[axis] for shape in (query_shape, value_shape) for axis in self.axes))

    def by_head(self, x):
        """Reshape a projected tensor (..., S1, S2, H, D) to (..., H, S, D)."""
        x = ops.transpose(x, self.order)
        return x if self.count == 1 else _merge(x, -1 - self.count, -1)

    def from_heads(self, x, shape):
        """Reshape x (..., H, T, D) to (..., T1, T2, H, D), with T = T1 * T2. `shape` is the shape of the logits."""
        if self.count > 1:
            x = ops.reshape(x, (*shape[: -self.count], ops.shape(x)[-1]))
        return ops.transpose(x, tuple(self.order.index(axis) for axis in range(len(self.order))))

    def fold(self, x):
        """Reshape x (..., T1, T2, S1, S2) to (..., T, S)."""
        return x if self.count == 1 else _merge(_merge(x, -2 * self.count, -self.count), -self.count, None)

    def unfold(self, x, shape):
        """Reshape x (..., T, S) to (..., T1, T2, S1, S2). `shape` is the shape of the logits."""
        return x if self.count == 1 else ops.reshape(x, shape)

    def expand_mask(self, mask):
        """Expand a mask to the rank of the logits. If the mask is `None`, return `None`."""
        if mask is None:
            return None
        mask = ops.cast(mask, "bool")
        for _ in range(len(self.batch_axes) + 1 + 2 * self.count - len(mask.shape)):
            mask = ops.expand_dims(mask, -2 * self.count - 1)
        return mask

    def expand_key_mask(self, mask):
        """Expand a mask of keys (B, ..., S1, S2) to the rank of the logits, (..., 1, 1, 1, S1, S2)."""
        mask = ops.transpose(ops.cast(mask, "bool"), (*self.batch_axes, *self.axes))
        shape = ops.shape(mask)
        return ops.reshape(mask, (*shape[: -self.count], *[1] * (1 + self.count), *shape[-self.count :]))

    def position_mask(self, query_shape, value_shape, is_causal, window=None):
        """Return the mask (T, S) of causal attention, of distances below `window`, or of both; otherwise `None`."""
        if not is_causal and window is None:
            return None
        queries, keys = (ops.arange(shape[self.axes[0]]) for shape in (query_shape, value_shape))
        distance = queries[:, None] - keys
        return both(distance >= 0 if is_causal else None, None if window is None else ops.abs(distance) < window)

    def fold_mask(self, mask, shape):
        """Fold a mask from `expand_mask` to (..., H, T, S). `shape` is the shape of the logits."""
        if mask is None or self.count == 1:
            return mask
        attended = 2 * self.count
        return self.fold(ops.broadcast_to(mask, (*ops.shape(mask)[:-attended], *shape[-attended:])))

    def fold_queries(self, x):
        """Move the attention axes of x to the end, and merge these axes into one. x has one value per query."""
        return x if len(x.shape) == 2 else _merge(ops.transpose(x, (*self.batch_axes, *self.axes)), -self.count, None)


def _merge(x, start, stop):
    shape = ops.shape(x)
    rest = () if stop is None else shape[stop:]
    return ops.reshape(x, (*shape[:start], math.prod(shape[start:stop]), *rest))
