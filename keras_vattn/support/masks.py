"""Check attention masks, and combine them into one mask (B, T, S)."""

import tensorflow as tf
from keras import ops

# The logit of a masked key, close to the lowest float32.
LOWEST = -3.4e38


def combine_masks(query, value, value_mask, key_mask, attention_mask, use_causal_mask):
    """Return one boolean mask that combines all masks and broadcasts to (B, T, S), or `None` without masks.

    Raises:
        ValueError: If a mask has the wrong rank, or a length that does not match the queries or keys.
    """
    mask = None
    for boolean_mask in boolean_masks(query, value, value_mask, key_mask, attention_mask):
        mask = both(mask, boolean_mask)
    if use_causal_mask:
        rows, columns = ops.arange(ops.shape(query)[1]), ops.arange(ops.shape(value)[1])
        mask = both(mask, (rows[:, None] >= columns[None, :])[None])
    return mask


def boolean_masks(query, value, value_mask, key_mask, attention_mask):
    """Return a list of all masks that are not `None`, as booleans that broadcast to (B, T, S).

    Raises:
        ValueError: If a mask has the wrong rank or length.
    """
    check_masks(query, value, value_mask, key_mask, attention_mask)
    masks = [ops.expand_dims(ops.cast(x, "bool"), 1) for x in (value_mask, key_mask) if x is not None]
    if attention_mask is not None:
        attention_mask = ops.cast(attention_mask, "bool")
        masks.append(attention_mask if len(attention_mask.shape) == 3 else attention_mask[None])
    return masks


def both(first, second):
    """Return the logical AND of two boolean masks. The mask `None` means `True` everywhere."""
    if first is None or second is None:
        return second if first is None else first
    return ops.logical_and(ops.cast(first, "bool"), ops.cast(second, "bool"))


def zero_unseen(mask, *sequences):
    """Return the sequences (B, S, D) with zeros at positions that are masked for all queries.

    Without the zeros, a NaN at a masked position would reach the output, because 0 * NaN is NaN. A sequence may be
    `None`.
    """
    if mask is None:
        return sequences
    visible = ops.expand_dims(ops.any(mask, axis=1), -1)  # (B, S, 1)
    return tuple(None if x is None else ops.where(visible, x, ops.zeros_like(x)) for x in sequences)


def first_mask(previous_mask):
    """Return the mask of the first input from `previous_mask`, the argument of `compute_mask`."""
    return previous_mask[0] if isinstance(previous_mask, (list, tuple)) else previous_mask


def check_masks(query, value, value_mask, key_mask, attention_mask):
    """Raise ValueError if a mask has the wrong rank, or a length that does not match the queries or keys."""
    for name, padding in (("value_mask", value_mask), ("key_mask", key_mask)):
        check_mask(name, padding, (value.shape[0], value.shape[1]), "(B, S)")
    if attention_mask is not None:
        # A mask (T, S) has no batch axis.
        expected = (query.shape[0], query.shape[1], value.shape[1])[-max(len(attention_mask.shape), 2) :]
        check_mask("attention_mask", attention_mask, expected, "(B, T, S) or (T, S)")


def check_sequences(query_shape, value_shape, key_shape):
    """Raise ValueError unless the three shapes are (B, T, Dq), (B, S, D) and (B, S, Dk) with equal B and S."""
    for name, shape in (("query", query_shape), ("value", value_shape), ("key", key_shape)):
        if len(shape) != 3:
            raise ValueError(f"`{name}` must have shape (batch, steps, width). Received: {name}.shape={tuple(shape)}")
    for name, shape, axes, sizes in (
        ("query", query_shape, 1, "batch sizes"),
        ("key", key_shape, 2, "batch sizes and lengths"),
    ):
        if not fits(shape[:axes], value_shape[:axes]):
            raise ValueError(
                f"`{name}` and `value` must have equal {sizes}. "
                f"Received: {name}.shape={tuple(shape)}, value.shape={tuple(value_shape)}"
            )


def check_mask(name, mask, expected, meaning):
    """Raise ValueError unless a mask is `None` or can be broadcast to the expected shape."""
    if mask is not None:
        check_shape(name, mask, expected, meaning, broadcast=True)


def check_shape(name, x, expected, meaning, broadcast=False):
    """Raise ValueError unless `fits` is true for the static shape of x."""
    if not fits(x.shape, expected, broadcast):
        raise ValueError(
            f"`{name}` must have shape {meaning}. Expected: {expected}. Received: {name}.shape={tuple(x.shape)}"
        )


def fits(shape, expected, broadcast=False):
    """Return whether a static shape equals the expected shape. A length of `None` equals every length.

    With `broadcast`, a length of 1 in `shape` also equals every length.
    """
    return len(shape) == len(expected) and all(
        None in pair or pair[0] == pair[1] or (broadcast and pair[0] == 1) for pair in zip(shape, expected, strict=True)
    )


def where_rows(mask, new, old):
    """Return the rows of `new` where a mask (B,) is true, and the rows of `old` elsewhere. The shapes must be equal."""
    # `ops.where` would make a masked LSTM 5 % slower.
    return tf.raw_ops.Select(condition=mask, x=new, y=old)
