"""Check arguments of layers. NumPy numbers become Python numbers, so that a config can be written as JSON."""

import math
import numbers

import numpy as np


def boolean(name, value):
    """Return `True` or `False`. Raise ValueError for any other value."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}")
    return bool(value)


def integer(name, value, minimum=None, optional=False, expected=None):
    """Return an integer of at least `minimum`. Raise ValueError for any other value.

    Args:
        name: Name of the argument, for the error message.
        value: Value to check.
        minimum: Smallest value, or `None`.
        optional: Whether `None` is valid.
        expected: Text that replaces "an integer of at least ..." in the error message.
    """
    if optional and value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or (minimum is not None and value < minimum):
        expected = expected or ("an integer" if minimum is None else f"an integer of at least {minimum}")
        raise ValueError(f"`{name}` must be {expected}{' or None' * optional}. Received: {name}={value!r}")
    return int(value)


def positive_integer(name, value, optional=False):
    """Return a positive integer or, with `optional`, `None`. Raise ValueError for any other value."""
    return integer(name, value, minimum=1, optional=optional, expected="a positive integer")


def whole_number(name, value):
    """Return an integer of at least 0. Raise ValueError for any other value."""
    return integer(name, value, minimum=0)


def number(name, value, minimum=-math.inf, above=-math.inf, maximum=math.inf, below=math.inf, optional=False):
    """Return `value` as a float. With `optional`, `None` is returned unchanged.

    Raises:
        ValueError: Unless `value` is finite, `minimum` <= value <= `maximum`, and `above` < value < `below`.
    """
    if optional and value is None:
        return None
    valid = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    if not valid or not (minimum <= value <= maximum and above < value < below):
        limits = (("of at least", minimum), ("above", above), ("of at most", maximum), ("below", below))
        bounds = " and ".join(f"{words} {limit}" for words, limit in limits if math.isfinite(limit))
        expected = f"a finite number {bounds}".strip() + " or None" * optional
        raise ValueError(f"`{name}` must be {expected}. Received: {name}={value!r}")
    return float(value)


def positive_number(name, value):
    """Return `value` as a float if it is finite and above 0. Otherwise raise ValueError."""
    return number(name, value, above=0)


def nonnegative_number(name, value):
    """Return `value` as a float if it is finite and at least 0. Otherwise raise ValueError."""
    return number(name, value, minimum=0)


def fraction(name, value):
    """Return `value` as a float if it is at least 0 and below 1. Otherwise raise ValueError."""
    return number(name, value, minimum=0, below=1)


def one_of(name, value, options):
    """Return `value` if it is one of `options`. Otherwise raise a ValueError that lists the options."""
    if not isinstance(value, str) or value not in options:
        names = ", ".join(f'"{option}"' for option in options)
        raise ValueError(f"`{name}` must be one of {names}. Received: {name}={value!r}")
    return value


def refuse_ignore_class(name, weights, ignore_class):
    """Raise ValueError if `ignore_class` is set, but the targets are weights, not integer labels."""
    if ignore_class is not None:
        raise ValueError(
            "`ignore_class` applies to integer labels, not to weights: give ignored words the weight 0, or mask them. "
            f"Received: {name}.shape={tuple(weights.shape)}, ignore_class={ignore_class}"
        )


def refuse_unread(owner, beside, **defaults):
    """Raise ValueError if an attribute that has no effect differs from its default.

    Args:
        owner: A layer or another object with the attributes.
        beside: Name of the attribute that disables the other attributes, for the error message.
        **defaults: Default values of the disabled attributes.
    """
    names = [name for name, default in defaults.items() if getattr(owner, name) != default]
    if names:
        received = ", ".join(f"{name}={getattr(owner, name)!r}" for name in (beside, *names))
        problem = f"{' and '.join(names)} would have no effect in this {type(owner).__name__}"
        raise ValueError(f"{problem}: use the default. Received: {received}")
