"""Assigns the values of parametrized tests to the default tier and the slow tier."""

import pytest

# XLA runs in the slow tier, because the battery tests XLA with loops, states and draws in the default tier.
jit_compile = pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])


def slow_after(values, count=1):
    """Return values for `parametrize`: the first `count` run in the default tier, the others in the slow tier."""
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=pytest.mark.slow if i >= count else ()) for i, row in enumerate(rows)]
