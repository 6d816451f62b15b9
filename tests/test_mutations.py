"""The seeded faults: that each still has its place in the code, which nobody sees before they are asked for."""

import collections

from faults import FAULTS
from mutations import file_of


def test_every_fault_can_be_put_in():
    lost = {x.name: x.file for x in FAULTS if file_of(x).read_text(encoding="utf-8").count(x.old) != 1}
    assert lost == {}


def test_every_fault_has_a_name_of_its_own():
    assert [name for name, count in collections.Counter(x.name for x in FAULTS).items() if count > 1] == []
