"""The two tiers: what a parametrized test leaves to the slow one."""

import pytest

# A loop, a state or a draw under XLA has rows of the battery in the default tier.
jit_compile = pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])


def slow_after(values, count=1):
    """Return values for `parametrize`: the first of them for the default tier, the rest for the slow one."""
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=pytest.mark.slow if i >= count else ()) for i, row in enumerate(rows)]
