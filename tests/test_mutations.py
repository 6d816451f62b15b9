"""The seeded faults: that each still has its place in the code, which nobody sees before they are asked for, and what
counts as finding one."""

import collections
import dataclasses

import pytest
from faults import FAULTS
from mutations import Outcome, file_of, outcome_of, verdict


def test_every_fault_can_be_put_in():
    lost = {x.name: x.file for x in FAULTS if file_of(x).read_text(encoding="utf-8").count(x.old) != 1}
    assert lost == {}


def test_every_fault_has_a_name_of_its_own():
    assert [name for name, count in collections.Counter(x.name for x in FAULTS).items() if count > 1] == []


@pytest.mark.parametrize(
    "status, output, expected",
    [
        (0, "3 passed", Outcome("passed")),
        (5, "3 deselected", Outcome("none")),
        (1, "F\nFAILED tests/x.py::test_y[1-a] - assert 1\n1 failed", Outcome("failed", "tests/x.py::test_y[1-a]")),
        (1, "E\nERROR tests/x.py::test_y - ValueError\n1 error", Outcome("error", "tests/x.py::test_y")),
        (2, "ERROR tests/x.py - NameError\n1 error in 2s", Outcome("error", "tests/x.py")),
        (4, "loading\nImportError while loading conftest\n", Outcome("error", "ImportError while loading conftest")),
        (-11, "", Outcome("error", "status -11")),
    ],
)
def test_a_failure_is_a_find_and_an_error_is_none(status, output, expected):
    outcome = outcome_of(status, output)
    assert outcome == expected
    assert verdict(FAULTS[0], outcome, fast=False)[0] == (expected.status == "failed")


def test_a_fault_with_a_reason_is_for_the_slow_tier_alone():
    slow = dataclasses.replace(FAULTS[0], slow_because="exports are slow")
    for outcome, well in ((Outcome("none"), True), (Outcome("passed"), True), (Outcome("failed", "x"), False)):
        assert verdict(slow, outcome, fast=True)[0] == well
        assert verdict(slow, outcome, fast=False)[0] == (not well)
    assert verdict(slow, Outcome("none"), fast=True)[1] == "slow: exports are slow"
    assert not verdict(slow, Outcome("error", "x"), fast=True)[0]
