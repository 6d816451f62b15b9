"""Table 5 of Fan et al. 2020, a column a task."""

import pytest
from application_cases import Compared, tables_of
from finetuning_cases import APPLICATION


@pytest.mark.parametrize("task", ["cola", "rte", "squad1"])
def test_table_5(task, tmp_path):
    figures = {"matthews": 0.5, "accuracy": 0.75, "exact": 0.25, "f1": 0.375}
    options = APPLICATION.program.commands["compare"](out=str(tmp_path), models=("deterministic", "wc"), seeds=1)
    options.of_train = {"task": task}
    record = {"report": {"task": figures}, "data": {"train": {"examples": 8}}}
    comparison = Compared(APPLICATION, options, {name: [record] for name in options.models})
    ((title, rows),) = tables_of("\n\n".join(APPLICATION.layouts["fan"](comparison))).items()
    assert title == "Table 5 of Fan et al. 2020; paper: ALBERT-base; here: 8 examples, 2 epochs"
    expected = {
        "cola": ({"cola": "50.00", "cola, paper": "54.5"}, {"cola": "50.00", "cola, paper": "55.8"}),
        "rte": ({"rte": "75.00", "rte, paper": "75.8"}, {"rte": "75.00", "rte, paper": "76.2"}),
        "squad1": [
            {"squad1 EM": "25.00", "squad1 EM, paper": exact, "squad1 F1": "37.50", "squad1 F1, paper": f1}
            for exact, f1 in (("80.86", "88.70"), ("81.40", "88.82"))
        ],
    }[task]
    assert rows == [{"model": name} | row for name, row in zip(("deterministic", "BAM-WC"), expected, strict=True)]
    options.of_train = {"task": "classes"}
    assert APPLICATION.layouts["fan"](Compared(APPLICATION, changed_out(options, tmp_path / "own"), {})) == []


def changed_out(options, out):
    options.out = str(out)
    return options
