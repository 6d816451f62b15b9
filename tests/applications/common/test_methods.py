"""The layout uncertainty: its figures against formulas, its runs on a tiny graph, and invalid options."""

import dataclasses
import pathlib
import shutil

import numpy as np
import pytest
import scipy.special
from application_cases import Compared
from program_case import written
from program_cases import CASES
from sklearn.metrics import roc_auc_score

from applications.common import methods
from applications.common.command_line import read_options
from applications.common.plan import plan
from keras_vattn import metrics

KINDS = ("", ", temperature", ", attention sampled")


def probabilities(seed, num_draws=1, num_examples=40, sharpness=3.0):
    logits = np.random.default_rng(seed).normal(size=(num_draws, num_examples, 3)) * sharpness
    return scipy.special.softmax(logits, axis=-1)


def sets_of(seed, num_draws=1):
    labels = np.random.default_rng(0).integers(-1, 3, size=40)
    sharpness = {"valid": 3.0, "test": 3.0, "other": 0.5, "corrupted": 1.0}
    return {
        name: {
            "labels": labels,
            "mean": probabilities(seed + index, 1, sharpness=by),
            "mean_ms": 2.0,
            "attention": probabilities(seed + index, num_draws, sharpness=by),
            "attention_ms": 7.0,
        }
        for index, (name, by) in enumerate(sharpness.items())
    }


def test_figures_of_a_method():
    """Accuracy and calibration use the examples with a known class; the entropy separates all of them from other
    data."""
    sets = sets_of(1, 4)
    labels, draws = sets["test"]["labels"], sets["test"]["attention"]
    results, is_labelled = methods.figures(sets, 11.0, "attention"), labels >= 0
    assert 0 < is_labelled.sum() < len(is_labelled)
    mean = draws.mean(axis=0)
    assert results["accuracy"] == np.mean(mean.argmax(axis=1)[is_labelled] == labels[is_labelled])
    corrupted = sets["corrupted"]["attention"].mean(axis=0).argmax(axis=1)
    assert (
        results["accuracy_corrupted"] == np.mean(corrupted[is_labelled] == labels[is_labelled]) != results["accuracy"]
    )
    assert results["nll"] == pytest.approx(-np.log(mean[is_labelled, labels[is_labelled]]).mean())
    assert (results["train_seconds"], results["ms"]) == (11.0, 7.0)
    for name in ("other", "corrupted"):
        is_other = np.repeat([0, 1], 40)
        entropies = [scipy.special.entr(x.mean(axis=0)).sum(axis=-1) for x in (draws, sets[name]["attention"])]
        assert results[name] == pytest.approx(roc_auc_score(is_other, np.concatenate(entropies)))
        unknown = [metrics.mutual_information(x) for x in (draws, sets[name]["attention"])]
        assert results[f"{name}_mi"] == pytest.approx(roc_auc_score(is_other, np.concatenate(unknown)))
    assert "other_mi" not in methods.figures(sets, 1.0)


def test_a_temperature_is_fitted_on_validation():
    sets = sets_of(5, 4)
    assert list(methods._methods(sets, 1.0)) == list(KINDS)
    is_labelled = sets["valid"]["labels"] >= 0
    temperature = metrics.fit_temperature(
        np.log(sets["valid"]["mean"][:, is_labelled]), sets["valid"]["labels"][is_labelled]
    )
    assert abs(temperature - 1.0) > 0.1
    power = sets["test"]["mean"] ** (1.0 / temperature)
    expected = power / power.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(methods._with_temperature(sets)["test"]["mean"], expected, rtol=1e-6)


@pytest.fixture
def comparison(compare_words, tmp_path):
    """Return a function that returns the options and the words of `compare` for tiny runs with the layout
    uncertainty."""

    def comparison(case, *words, **changes):
        graph = {"neighbors": ()} if case.name == "graphs" else {}
        words = compare_words(case, "--layout", "uncertainty", *words, **graph, **changes)
        return read_options(case.program, "compare", list(map(str, words[1:]))), words

    return comparison


def test_members_have_seeds_of_their_own(comparison):
    program, words = CASES["graphs"].program, ("--models", "gat", "wc", "--seeds", 2, "--ensemble", 3)
    options, _ = comparison(CASES["graphs"], *words, "--first-seed", 5)
    assert [(run.name, run.seed, run.is_member) for run in plan(program, options)] == [
        *(("gat", 5, False), ("gat", 6, False), ("wc", 5, False), ("wc", 6, False)),
        *(("gat", seed, True) for seed in (7, 8, 9, 10)),
    ]
    assert not any(run.is_member for run in plan(program, dataclasses.replace(options, layout=())))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--ensemble", 1), "--ensemble: must be 0 or at least 2"),
        (("--models", "wc"), "--baseline: ensembles need a baseline in --models. Received: gat"),
        (("--layout", "fan", "--corruption", 1), "--corruption requires --layout uncertainty"),
    ],
)
def test_what_is_refused(comparison, words, message):
    _, words = comparison(CASES["graphs"], *words)
    CASES["graphs"].fails(message, *words)


def test_a_table_needs_test_data(comparison, commands_run):
    _, words = comparison(CASES["finetuning"], test=None)
    CASES["finetuning"].fails("The uncertainty table needs test data", *words)
    assert not commands_run


def test_rows_of_methods(comparison, monkeypatch):
    """Seeds are paired, and an ensemble has the members of its seed."""
    words = ("--models", "gat", "wc", "--seeds", 2, "--ensemble", 3)
    options, _ = comparison(CASES["graphs"], *words)
    compared = Compared(CASES["graphs"].program.application(), options, {"gat": [], "wc": []})
    layout, shown = methods.Uncertainty(None, None, 2.0), []

    def evaluate(name, arguments_of, command, runs, files):
        reports = {}
        for run in runs:
            assert arguments_of(run) == ["--corruption", "2.0", *["--num-draws", "0"] * run.is_member] and not files
            folder, sets = pathlib.Path(run.options.run.out), sets_of(10 * run.seed)
            folder.mkdir(exist_ok=True)
            np.savez(
                folder / f"{name}.npz", **{f"{x}/{key}": y for x, arrays in sets.items() for key, y in arrays.items()}
            )
            method_figures = methods._methods(sets, 10.0**run.seed)
            reports.setdefault(run.name, []).append({"title": "", "methods": method_figures})
        return reports

    compared.evaluate = evaluate
    monkeypatch.setattr(methods, "main_table", lambda columns, rows, heads: shown.append(rows) or "")
    monkeypatch.setattr(methods, "difference_table", lambda columns, rows, baseline: "")
    layout(compared)
    (rows,) = shown
    assert {name: [row["train_seconds"] for row in seeds] for name, seeds in rows.items()} == {
        **{
            f"{model}{kind}": [1.0, 10.0]
            for model in ("gat", "wc")
            for kind in ("", ", temperature", ", attention sampled")
        },
        "gat, ensemble of 3": [1.0 + 1e2 + 1e4, 1e1 + 1e3 + 1e5],
    }
    for seed, row in enumerate(rows["gat, ensemble of 3"]):
        mean = np.mean([sets_of(10 * (seed + 2 * k))["test"]["mean"][0] for k in range(3)], axis=0)
        labels = sets_of(0)["test"]["labels"]
        is_labelled = labels >= 0
        assert row["nll"] == pytest.approx(-np.log(mean[is_labelled, labels[is_labelled]]).mean())
        assert row["ms"] == 6.0 and "other_mi" in row


def table_of(printed):
    """Return the methods of a table, and the set of its columns."""
    head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if "|" in line)
    return [row[0] for row in rows], set(head)


def methods_of(model, *drawn):
    return [model + kind for kind in ("", ", temperature", *(f", {x} sampled" for x in drawn))]


@pytest.mark.slow
def test_the_table_of_a_run(run_of, tmp_path):
    """Other data and corruption are defined by each program."""
    case = CASES["finetuning"]
    run = shutil.copytree(run_of(case).path, tmp_path / "run")
    other = written(case.evaluated, tmp_path)["data"]
    rows, columns = table_of(case.succeeds("uncertainty", "--run", run, "--other", other, "--num-draws", 2))
    assert rows == methods_of("wc", "dropout", "attention", "both")
    assert {"AUROC, other data", "AUROC, corrupted"} <= columns


@pytest.mark.slow
def test_the_table_of_a_comparison(comparison, commands_run, tmp_path, without_pictures):
    """Labels of another graph are ignored."""
    case, other = CASES["graphs"], tmp_path / "other.npz"
    np.savez(
        other,
        features=np.random.default_rng(0).normal(size=(9, 3)),
        labels=np.arange(9) - 1,
        edges=[[0, 1], [1, 2]],
    )
    words = ("--models", "wc", "--baseline", "wc", "--seeds", 1, "--ensemble", 2, "--num-draws", 2, "--other", other)
    _, words = comparison(case, *words)
    results = case.succeeds(*words)
    assert len([command for command in commands_run if command[0] == "train"]) == 2
    rows, columns = table_of(results[results.index("Uncertainty: ") :])
    assert rows == [*methods_of("wc", "dropout", "attention", "both"), "wc, ensemble of 2"]
    assert {"AUROC, other data", "AUROC, corrupted"} <= columns
    # A second call reads the stored predictions. They are recomputed if the content of the file changes.
    count = len(commands_run)
    assert case.succeeds(*words) == results and len(commands_run) == count
    np.savez(other, features=np.ones((9, 3)), labels=np.arange(9) - 1, edges=[[0, 1], [1, 2]])
    case.succeeds(*words)
    assert [command[0] for command in commands_run[count:]] == ["uncertainty"] * 2
