"""Checks of constructor arguments that several layers share; each returns the value it accepts."""


def boolean(name, value):
    """Return `True` or `False`; ValueError otherwise."""
    if not isinstance(value, bool):
        raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}")
    return value


def positive_integer(name, value, optional=False):
    """Return a positive integer, or `None` where that is allowed; ValueError otherwise."""
    if optional and value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        expected = "a positive integer or None" if optional else "a positive integer"
        raise ValueError(f"`{name}` must be {expected}. Received: {name}={value!r}")
    return value


def whole_number(name, value):
    """Return an integer of at least 0; ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"`{name}` must be an integer of at least 0. Received: {name}={value!r}")
    return value


def positive_number(name, value):
    """Return a finite number above 0; ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ValueError(f"`{name}` must be a finite number above 0. Received: {name}={value!r}")
    return float(value)


def finite_number(name, value):
    """Return a finite number; ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < float("inf"):
        raise ValueError(f"`{name}` must be a finite number. Received: {name}={value!r}")
    return float(value)


def nonnegative_number(name, value):
    """Return a finite number of at least 0; ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise ValueError(f"`{name}` must be a finite number of at least 0. Received: {name}={value!r}")
    return value


def dropout_rate(value):
    """Return a rate of dropout in [0, 1); ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        raise ValueError(f"`dropout` must be a rate in [0, 1). Received: dropout={value!r}")
    return value


def one_of(name, value, known):
    """Return a value that is one of the known names; ValueError lists them otherwise."""
    if not isinstance(value, str) or value not in known:
        names = ", ".join(f'"{option}"' for option in known)
        raise ValueError(f"`{name}` must be one of {names}. Received: {name}={value!r}")
    return value


def refuse(layer, arguments, names):
    """Raise ValueError for arguments of the base class that a named layer has decided already."""
    for name in names:
        if name in arguments:
            raise ValueError(
                f"{layer} has its own `{name}`; use keras_vattn.Attention to choose it. "
                f"Received: {name}={arguments[name]!r}"
            )
