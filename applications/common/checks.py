"""Options out of their range: each check names the option as it is written on the command line."""

import dataclasses
import math

from applications.common.errors import InputError

PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")


def out_of_range(name, expected, value):
    """Return the `InputError` of an option."""
    return InputError(f"--{name.replace('_', '-')}: {expected}. Received: {value}")


def check_choices(options, choices):
    """Raise `InputError` unless each option is one of its choices, a dictionary from name to a tuple."""
    for name, known in choices.items():
        if getattr(options, name) not in known:
            names = ", ".join("none" if choice is None else choice for choice in known)
            raise out_of_range(name, f"expected one of {names}", getattr(options, name))


def check_finite(options):
    """Raise `InputError` for a float that is NaN or infinite."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise out_of_range(field.name, "must be finite", value)


def check_positive(options, names):
    """Raise `InputError` unless the options of these names, words of one string, are above 0 or `None`."""
    for name in names.split():
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise out_of_range(name, "must be positive", value)


def check_not_negative(options, names):
    """Raise `InputError` unless the options of these names are at least 0."""
    for name in names.split():
        if not getattr(options, name) >= 0:
            raise out_of_range(name, "must be at least 0", getattr(options, name))


def check_dropout(options, names):
    """Raise `InputError` unless the options of these names are in [0, 1)."""
    for name in names.split():
        if not 0 <= getattr(options, name) < 1:
            raise out_of_range(name, "must be in [0, 1)", getattr(options, name))


def check_fraction(options, names):
    """Raise `InputError` unless the options of these names are between 0 and 1."""
    for name in names.split():
        if not 0 < getattr(options, name) < 1:
            raise out_of_range(name, "must be between 0 and 1", getattr(options, name))


def check_seeds(options, bits):
    """Raise `InputError` unless the seeds of model and data are at least 0 and have at most so many bits."""
    for name in ("seed", "data_seed"):
        if not 0 <= getattr(options, name) < 2**bits:
            raise out_of_range(name, f"must be at least 0 and less than 2**{bits}", getattr(options, name))
