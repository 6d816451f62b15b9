"""Tests that every program trains for some steps, reports, exports and answers on tiny data."""

import pytest
import tensorflow as tf
from program_case import written
from program_cases import CASES
from run_files import read_json
from tiers import slow_after

FILES = {"config.yaml", "weights.npz", "model.keras", "history.csv", "report.txt", "report.html", "shown.json"}


@pytest.mark.parametrize("name", slow_after(CASES))
def test_train_report_export_and_answer(name, run_of, exported_by, tmp_path):
    case = CASES[name]
    run = run_of(case).path
    assert {path.name for path in run.iterdir()} >= FILES | set(case.answers)
    values = [column.value(read_json(run / "metrics.json")) for column in case.program.application().columns]
    assert sum(isinstance(value, int | float) for value in values) >= 2

    words = [word for option, path in written(case.evaluated, tmp_path).items() for word in (f"--{option}", path)]
    report = case.succeeds("evaluate", "--run", run, "--out", tmp_path / "report", *words)
    assert f"| {case.program.application().columns[0].title} " in report

    served = tf.saved_model.load(str(exported_by(case)))
    for endpoint in served.signatures.values():
        positional, named = endpoint.structured_input_signature
        assert named and not positional

    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in case.lines), encoding="utf-8")
    answers = case.succeeds(*case.answers_of(run, "--input", tmp_path / "lines.txt"))
    assert len(answers.splitlines()) == len(case.lines)
