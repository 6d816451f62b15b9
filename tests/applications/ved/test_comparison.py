import contextlib
import json
import subprocess
import types

import numpy as np
import pytest
import scipy.stats
import yaml
from ved_cases import SMALL, call, write_table

from applications.common import comparison as common_comparison
from applications.common.command_line import run
from applications.ved import comparison, evaluation, training
from applications.ved.__main__ import COMMANDS
from applications.ved.comparison import CompareOptions
from applications.ved.tables import table_of

COLUMNS = ("bleu_1", "bleu_2", "bleu_3", "bleu_4", "entropy", "dist_1", "dist_2")
SHORT = {**SMALL, "max_source_length": 4, "max_target_length": 4, "decode_every": 9}


def make_records(values):
    """Return records in which the columns of (row, inference, seed) are the value given, that plus one, and so on."""
    records = {}
    for (row, inference, seed), value in values.items():
        report = records.setdefault((row, seed), {"split": "test", "report": {"num_sources": 9}})["report"]
        report[inference] = {column: value + index for index, column in enumerate(COLUMNS)}
        report[inference]["bleu_signature"] = "the signature"
    return records


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_table_of_two_seeds():
    values = {}
    for seed in (0, 1, 2):
        values |= {("ded", "map", seed): 1.0 + seed, ("ved_dattn", "map", seed): 2.0 + seed}
        values |= {("ved_dattn", "sampling", seed): 3.0 + seed}
        values |= {("ved_vattn_0", "map", seed): 0.5, ("ved_vattn_0", "sampling", seed): 4.0 + 1.1 * seed}
    rows = ("ded", "ved_dattn", "ved_vattn_0")
    lines = table_of(CompareOptions(rows=rows, seeds=3), make_records(values)).splitlines()
    assert lines[0] == "3 seeds, mean [95% interval]; 9 test sources; the signature"
    assert cells(lines[2]) == ["row", "inference", *COLUMNS]
    body = {tuple(cells(line)[:2]): cells(line)[2:] for line in lines[4:9]}
    assert list(body) == [
        (row, how) for row in rows for how in ("map", "sampling") if (row, how) != ("ded", "sampling")
    ]
    half = scipy.stats.t.ppf(0.975, 2) / np.sqrt(3)  # the standard deviation is 1
    assert body["ded", "map"][0] == f"2.00 [{2 - half:.2f}, {2 + half:.2f}]"
    assert body["ded", "map"][4] == f"6.000 [{6 - half:.3f}, {6 + half:.3f}]"
    assert body["ved_vattn_0", "map"][1] == "1.50 [1.50, 1.50]"
    # Differences of pairs have their own spread: 1, 1.1, 1.2.
    assert lines[10] == "Paired differences against ved_dattn, sampling:"
    difference = cells(lines[-1])
    half = scipy.stats.t.ppf(0.975, 2) * 0.1 / np.sqrt(3)
    assert difference[:2] == ["ved_vattn_0", f"1.10 [{1.1 - half:.2f}, {1.1 + half:.2f}]"]
    assert len(lines) == 15


def test_one_seed_makes_no_claim():
    values = {(row, how, 0): 1.25 for row in ("ved_dattn", "ved_vattn_0") for how in ("map", "sampling")}
    options = CompareOptions(rows=("ved_dattn", "ved_vattn_0"), seeds=1, layout="table_4")
    text = table_of(options, make_records(values))
    assert text.startswith("one seed, no claim; 9 test sources") and "[" not in text and "Paired" not in text
    assert cells(text.splitlines()[2]) == ["row", "inference", "bleu_2", "entropy", "dist_1", "dist_2"]
    assert cells(text.splitlines()[4])[2:] == ["2.25", "5.250", "6.250", "7.250"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--rows", "ded", "seq2seq"], "expected one of ded, "),
        (["--rows", "ved_vattn_0:much"], "gamma_a must be a number"),
        (["--rows", "ved_vattn_0:-1"], "gamma_a must be at least 0"),
        (["--rows", "ded", "ded"], "--rows: every row once"),
        (["--baseline", "ded_dattn"], "--baseline: differences are those of draws"),
        (["--seeds", "0"], "--seeds: must be positive"),
        (["--layout", "table_3"], "--layout: expected table_2 or table_4"),
        (["--preset", "large"], "--preset: expected one of small, paper"),
        (["--options", "none.yaml"], "error: --options: none.yaml cannot be read"),
    ],
)
def test_bad_input_starts_no_run(tmp_path, monkeypatch, arguments, message):
    monkeypatch.setattr(common_comparison, "subprocess", None)
    status, _, errors = call("compare", "--out", tmp_path / "out", *arguments)
    assert status == 2 and errors.startswith("error: ") and errors.count("\n") == 1
    assert message in errors
    assert not (tmp_path / "out").exists()


@pytest.fixture
def in_process(monkeypatch, eagerly):
    """Runs what `compare` starts in this process, without pictures and likelihoods; returns the list of commands."""
    commands = []
    monkeypatch.setattr(training, "write_pictures", lambda *arguments: None)
    monkeypatch.setattr(evaluation, "likelihood_report", lambda *arguments: {})

    def start(command, stdout, **options):
        assert command[1:3] == ["-m", "applications.ved"]
        commands.append(command[3:])
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stdout):
            return types.SimpleNamespace(returncode=run("ved", COMMANDS, command[3:]))

    here = types.SimpleNamespace(run=start, STDOUT=subprocess.STDOUT, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr(common_comparison, "subprocess", here)
    return commands


def test_two_rows_and_two_seeds(tmp_path, in_process, monkeypatch):
    out = tmp_path / "compared"
    table = str(write_table(tmp_path / "train.tsv"))
    options = {**SHORT, "train_table": table, "epochs": 1, "batch_size": 64, "max_test_sources": 2, "export": False}
    file = tmp_path / "options.yaml"
    file.write_text(yaml.safe_dump(options))
    command = ["compare", "--out", out, "--options", file, "--rows", "ved_dattn", "ved_vattn_0:0.5"]

    status, output, errors = call(*command, "--seeds", 2)
    assert status == 0, errors
    names = ["ved_dattn_seed_0", "ved_vattn_0_gamma_0.5_seed_0", "ved_dattn_seed_1", "ved_vattn_0_gamma_0.5_seed_1"]
    assert [arguments[2].rpartition("/")[2] for arguments in in_process] == [f"{name}.yaml" for name in names]
    for name in names:
        assert (out / name / "metrics.json").exists() and (out / f"{name}.log").stat().st_size
    record = json.loads((out / names[3] / "metrics.json").read_text())
    assert (record["row"], record["seed"], record["options"]["gamma_a"]) == ("ved_vattn_0", 1, 0.5)
    assert (out / "curves.png").exists()
    table = (out / "table.md").read_text()
    assert table in output
    assert table.startswith("2 seeds, mean [95% interval]; 2 valid sources")
    entropies = [
        json.loads((out / name / "metrics.json").read_text())["report"]["sampling"]["entropy"] for name in names
    ]
    mean = np.mean([entropies[1], entropies[3]])
    line = next(line for line in table.splitlines() if line.startswith("| ved_vattn_0:0.5 | sampling"))
    assert cells(line)[6].startswith(f"{mean:.3f} [")
    difference = np.mean([entropies[1] - entropies[0], entropies[3] - entropies[2]])
    assert cells(table.splitlines()[-1])[5].startswith(f"{difference:.3f} [")
    assert len(json.loads((out / "comparison.json").read_text())["runs"]) == 4

    # What has been trained is read again, for fewer seeds too; other options are another comparison.
    monkeypatch.setattr(comparison.keras_vattn.plots, "training_curves", lambda *arguments, **options: None)
    same = {"out": str(out), "options": str(file), "rows": ["ved_dattn", "ved_vattn_0:0.5"], "seeds": 2}
    (tmp_path / "compare.yaml").write_text(yaml.safe_dump(same))
    config = ["compare", "--config", tmp_path / "compare.yaml"]
    assert call(*config)[1] == output and len(in_process) == 4
    assert "one seed, no claim" in call(*config, "--seeds", 1)[1] and len(in_process) == 4
    file.write_text(yaml.safe_dump({**options, "units": 9}))
    status, _, errors = call(*command, "--seeds", 2)
    assert status == 2 and "holds a run with other options (units)" in errors and len(in_process) == 4


def test_bad_data_are_found_before_the_runs(tmp_path, in_process):
    file = tmp_path / "options.yaml"
    file.write_text("train_table: none.tsv\n")
    status, _, errors = call("compare", "--out", tmp_path / "out", "--options", file, "--rows", "ved_dattn")
    assert (status, errors) == (2, "error: none.tsv: no such file\n") and not in_process


def test_a_run_that_fails_is_named(tmp_path, in_process):
    file = tmp_path / "options.yaml"
    table = str(write_table(tmp_path / "train.tsv"))
    file.write_text(yaml.safe_dump({**SHORT, "train_table": table, "learning_rate": 1e30}))
    status, _, errors = call("compare", "--out", tmp_path / "out", "--options", file, "--rows", "ded", "--seeds", 1)
    assert status == 2
    assert errors.splitlines()[-1].startswith("error: train ded_seed_0 failed: error: The loss became ")
    assert not (tmp_path / "out" / "table.md").exists()
