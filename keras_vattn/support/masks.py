"""Masks of attention: checked, and put together to the one that says which query sees which key."""

import tensorflow as tf
from keras import ops

# Nearly the most negative float32: the logit of a key that a query does not see.
LOWEST = -3.4e38


def combine_masks(query, value, value_mask, key_mask, attention_mask, use_causal_mask):
    """Return the boolean mask that broadcasts to (B, T, S), or `None` where nothing is masked.

    Raises:
        ValueError: If a mask has the wrong rank or a length that cannot match.
    """
    mask = None
    for boolean_mask in boolean_masks(query, value, value_mask, key_mask, attention_mask):
        mask = both(mask, boolean_mask)
    if use_causal_mask:
        rows, columns = ops.arange(ops.shape(query)[1]), ops.arange(ops.shape(value)[1])
        mask = both(mask, (rows[:, None] >= columns[None, :])[None])
    return mask


def boolean_masks(query, value, value_mask, key_mask, attention_mask):
    """Return the masks that are given, booleans each of which broadcasts to (B, T, S); errors as `combine_masks`."""
    check_masks(query, value, value_mask, key_mask, attention_mask)
    masks = [ops.expand_dims(ops.cast(x, "bool"), 1) for x in (value_mask, key_mask) if x is not None]
    if attention_mask is not None:
        attention_mask = ops.cast(attention_mask, "bool")
        masks.append(attention_mask if len(attention_mask.shape) == 3 else attention_mask[None])
    return masks


def both(first, second):
    """Return where both boolean masks hold; `None` holds everywhere."""
    if first is None or second is None:
        return second if first is None else first
    return ops.logical_and(ops.cast(first, "bool"), ops.cast(second, "bool"))


def zero_unseen(mask, *sequences):
    """Return sequences (B, S, D), or `None`, with zeros at the positions that no query sees.

    There may be anything, NaN too, and a product with a zero weight would let it through.
    """
    if mask is None:
        return sequences
    visible = ops.expand_dims(ops.any(mask, axis=1), -1)  # (B, S, 1)
    return tuple(None if x is None else ops.where(visible, x, ops.zeros_like(x)) for x in sequences)


def first_mask(previous_mask):
    """Return the mask of a layer's first input, from what Keras hands to `compute_mask`."""
    return previous_mask[0] if isinstance(previous_mask, (list, tuple)) else previous_mask


def check_masks(query, value, value_mask, key_mask, attention_mask):
    """Raise ValueError if a mask has the wrong rank or a length that cannot match; looks at shapes alone."""
    for name, padding in (("value_mask", value_mask), ("key_mask", key_mask)):
        check_mask(name, padding, (value.shape[0], value.shape[1]), "(B, S)")
    if attention_mask is not None:
        # Without the axis of the examples it is one for all of them.
        expected = (query.shape[0], query.shape[1], value.shape[1])[-max(len(attention_mask.shape), 2) :]
        check_mask("attention_mask", attention_mask, expected, "(B, T, S) or (T, S)")


def check_sequences(query_shape, value_shape, key_shape):
    """Raise ValueError unless the shapes are (B, T, Dq), (B, S, D) and (B, S, Dk) of one B and one S."""
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
    """Raise ValueError if a mask, unless it is `None`, cannot be broadcast to the expected shape."""
    if mask is not None:
        check_shape(name, mask, expected, meaning, broadcast=True)


def check_shape(name, x, expected, meaning, broadcast=False):
    """Raise ValueError if the static shape of x cannot be the expected one, or broadcast to it."""
    if not fits(x.shape, expected, broadcast):
        raise ValueError(
            f"`{name}` must have shape {meaning}, here {expected}. Received: {name}.shape={tuple(x.shape)}"
        )


def fits(shape, expected, broadcast=False):
    """Return whether a static shape can be the expected one, or broadcast to it."""
    return len(shape) == len(expected) and all(
        None in pair or pair[0] == pair[1] or (broadcast and pair[0] == 1) for pair in zip(shape, expected, strict=True)
    )


def where_rows(mask, new, old):
    """Return the rows of `new` where a boolean mask (B,) holds, and those of `old` elsewhere; both have one shape.

    That of `ops.where` asks for shapes at every step of a backward loop: a masked LSTM takes 1.05 times as long.
    """
    return tf.raw_ops.Select(condition=mask, x=new, y=old)
