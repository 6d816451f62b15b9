"""Masks of attention: checked, and put together to the one that says which query sees which key."""

from keras import ops


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
    """Raise ValueError if a mask, unless it is `None`, cannot be broadcast to the expected shape."""
    if mask is not None:
        check_shape(name, mask, expected, meaning, broadcast=True)


def check_shape(name, x, expected, meaning, broadcast=False):
    """Raise ValueError if the static shape of x cannot be the expected one, or broadcast to it."""
    shape = tuple(x.shape)
    fits = len(shape) == len(expected) and all(
        None in pair or pair[0] == pair[1] or (broadcast and pair[0] == 1) for pair in zip(shape, expected, strict=True)
    )
    if not fits:
        raise ValueError(f"`{name}` must have shape {meaning}, here {expected}. Received: {name}.shape={shape}")
