"""Tests progress lines with a simulated clock."""

import types

import pytest

from applications.common import progress


@pytest.fixture
def clock(monkeypatch):
    clock = types.SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(progress, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("seconds", "lines"),
    [
        (0.5, []),
        (2.0, ["read: 3/7, 6 s, 8 s left", "read: 6/7, 12 s, 2 s left"]),
        (7.0, [f"read: {done}/7, {7 * done} s, {7 * (7 - done)} s left" for done in range(1, 8)]),
    ],
)
def test_a_line_of_a_file_once_five_seconds_have_passed(clock, capsys, seconds, lines):
    items = []
    for item in progress.progress(range(7), "read"):
        items.append(item)
        clock.now += seconds
    assert items == list(range(7))
    assert capsys.readouterr().err.splitlines() == lines


def test_a_changing_line_on_a_terminal(clock, capsys, monkeypatch):
    """On a terminal, a progress line overwrites the previous line, and the last line is cleared at the end."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    for seconds in progress.progress([9.0, 0.1, 0.2], "read"):
        clock.now += seconds
    first, last = "read: 1/3, 9 s, 18 s left", "read: 3/3, 9 s, 0 s left"
    assert capsys.readouterr().err == f"\r{first}\r{last:{len(first)}}\r{'':{len(last)}}\r"
