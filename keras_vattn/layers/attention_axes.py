import math

from keras import ops

from keras_vattn.support.masks import both


class AttentionAxes:
    """Which axes of its inputs a multi-head attention attends over, and the rows (..., H, T, S) that they make.

    An input is (B, ..., D), a projected one has the heads before its last axis. An alignment sees one axis of queries
    and one of keys: several attention axes are folded into one, and the axes beside them stand before the heads.

    Args:
        axes: Attention axes of an input, `None` for all but the first and the last, negative ones from the end.
        rank: Rank of an input.
    """

    def __init__(self, axes, rank):
        self.axes = tuple(range(1, rank - 1)) if axes is None else tuple(axis % rank for axis in axes)
        self.batch_axes = tuple(axis for axis in range(rank - 1) if axis not in self.axes)
        self.count = len(self.axes)
        inside = axes is None or all(-rank <= axis < rank for axis in axes)
        self.are_valid = inside and self.count > 0 and len({*self.axes, rank - 1}) == self.count + 1
        # Whether an input is (B, T, D), of which Keras makes masks.
        self.is_plain = rank == 3 and self.axes == (1,)
        # From the axes of a projected tensor to others, heads, attention axes, width.
        self.order = (*self.batch_axes, rank - 1, *self.axes, rank)

    def logits_shape(self, num_heads, query_shape, value_shape):
        """Return the shape of the logits, (..., H, T1, T2, S1, S2), from the shapes of the inputs."""
        batch_sizes = (query_shape[axis] for axis in self.batch_axes)
        return (*batch_sizes, num_heads, *(shape[axis] for shape in (query_shape, value_shape) for axis in self.axes))

    def by_head(self, x):
        """Return a projected tensor (..., S1, S2, H, D) as (..., H, S, D)."""
        x = ops.transpose(x, self.order)
        return x if self.count == 1 else _merge(x, -1 - self.count, -1)

    def from_heads(self, x, shape):
        """Return (..., T1, T2, H, D) from (..., H, T, D), for logits of the given shape."""
        if self.count > 1:
            x = ops.reshape(x, (*shape[: -self.count], ops.shape(x)[-1]))
        return ops.transpose(x, tuple(self.order.index(axis) for axis in range(len(self.order))))

    def fold(self, x):
        """Return (..., T, S) from (..., T1, T2, S1, S2)."""
        return x if self.count == 1 else _merge(_merge(x, -2 * self.count, -self.count), -self.count, None)

    def unfold(self, x, shape):
        """Return (..., T1, T2, S1, S2) from (..., T, S), for logits of the given shape."""
        return x if self.count == 1 else ops.reshape(x, shape)

    def expand_mask(self, mask):
        """Return a boolean mask with an axis of length one for each of the logits' axes before the attention axes that
        it lacks; `None` for `None`."""
        if mask is None:
            return None
        mask = ops.cast(mask, "bool")
        for _ in range(len(self.batch_axes) + 1 + 2 * self.count - len(mask.shape)):
            mask = ops.expand_dims(mask, -2 * self.count - 1)
        return mask

    def expand_key_mask(self, mask):
        """Return a mask of the keys, (B, ..., S1, S2), with the axes of the logits, (..., 1, 1, 1, S1, S2)."""
        mask = ops.transpose(ops.cast(mask, "bool"), (*self.batch_axes, *self.axes))
        shape = ops.shape(mask)
        return ops.reshape(mask, (*shape[: -self.count], *[1] * (1 + self.count), *shape[-self.count :]))

    def position_mask(self, query_shape, value_shape, is_causal, window=None):
        """Return which query sees which key by their positions on the one attention axis, (T, S), or `None` where order
        hides nothing: causal queries see the keys up to their own position, a window those nearer than its size."""
        if not is_causal and window is None:
            return None
        queries, keys = (ops.arange(shape[self.axes[0]]) for shape in (query_shape, value_shape))
        distance = queries[:, None] - keys
        return both(distance >= 0 if is_causal else None, None if window is None else ops.abs(distance) < window)

    def fold_mask(self, mask, shape):
        """Return a mask of the rank of the logits as one that broadcasts to (..., H, T, S), `None` for `None`."""
        if mask is None or self.count == 1:
            return mask
        attended = 2 * self.count
        return self.fold(ops.broadcast_to(mask, (*ops.shape(mask)[:-attended], *shape[-attended:])))

    def fold_queries(self, x):
        """Return (..., T) from a value for each query, (B, ...)."""
        return x if len(x.shape) == 2 else _merge(ops.transpose(x, (*self.batch_axes, *self.axes)), -self.count, None)


def _merge(x, start, stop):
    """Return x with the axes from start to stop made one."""
    shape = ops.shape(x)
    rest = () if stop is None else shape[stop:]
    return ops.reshape(x, (*shape[:start], math.prod(shape[start:stop]), *rest))
