"""Tables in Markdown."""

from applications.common.markdown import interval_text, table
from applications.text.metrics import mean_interval


def test_a_bar_in_a_cell_is_none_of_the_table():
    assert table(("a", "b"), [("p(y | z)", 1)]).splitlines() == ["| a | b |", "| --- | --- |", r"| p(y \| z) | 1 |"]


def test_intervals():
    assert interval_text(mean_interval([1.0, 3.0]), 1) == "2.0 [-10.7, 14.7]"
    assert interval_text(mean_interval([1.25])) == "1.250"
