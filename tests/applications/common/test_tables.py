"""Tests tables, reports and bounds with constructed metrics."""

import math

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from applications.common.batches import array_batches, num_array_batches
from applications.common.bounds import bound_report
from applications.common.reporting import collapsed_posteriors
from applications.common.significance import mean_interval
from applications.common.tables import Column, difference_table, figures_of, main_table, table

COLUMNS = (
    Column("accuracy (%)", "report.accuracy", 1, scale=100.0),
    Column("perplexity", "report.likelihood.perplexity", logarithm=True),
    Column("kind", "report.kind"),
    Column("units", lambda record: record["report"].get("units"), 0, differs=False),
    Column("BLEU", "report.bleu", 2),
    Column("recall (%)", "report.recall", 1, 100.0, against="report.accuracy"),
)


def record(accuracy, perplexity, **figures):
    return {"report": {"accuracy": accuracy, "likelihood": {"perplexity": perplexity}, "kind": "exact", **figures}}


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_figures_of_one_run():
    lines = figures_of(COLUMNS, record(0.25, 4.0, units=3.0)).splitlines()
    assert [cells(line) for line in lines[2:]] == [
        ["accuracy (%)", "25.0"],
        ["perplexity", "4.000"],
        ["kind", "exact"],
        ["units", "3"],
    ]


def test_an_entry_of_a_list():
    curve = {"curve": [{"entropy": 1.0}, {"entropy": 1.5}]}
    assert Column("entropy", "report.curve.1.entropy", 2).value({"report": curve}) == 1.5


def test_means_of_seeds_and_paired_differences():
    """A metric that no model has gets no column. A metric that one seed lacks is shown as a dash. The difference of two
    perplexities is the difference of their logarithms, with an interval of its own."""
    records_by_model = {
        "a": [record(0.1, math.e), record(0.2, math.e), record(0.3, math.e)],
        "b|c": [record(0.2, math.e**2), record(0.31, math.e**2), record(0.42, math.e**3, bleu=3.0)],
    }
    head, _, first, second = main_table(COLUMNS, records_by_model).splitlines()
    assert cells(head) == ["model", "accuracy (%)", "perplexity", "kind", "BLEU"]
    half = scipy.stats.t.ppf(0.975, 2) * 10 / np.sqrt(3)
    assert cells(first) == ["a", f"20.0 [{20 - half:.1f}, {20 + half:.1f}]", "2.718 [2.718, 2.718]", "exact", "-"]
    assert second.startswith(r"| b\|c ")
    head, _, line = difference_table(COLUMNS, records_by_model, "a").splitlines()
    assert cells(head) == ["model", "accuracy (%)", "log perplexity"]
    half = scipy.stats.t.ppf(0.975, 2) / np.sqrt(3)
    shift = half / np.sqrt(3)
    cut = line.replace(r"\|", "/")
    assert cells(cut)[1:] == [
        f"11.0 [{11 - half:.1f}, {11 + half:.1f}]",
        f"1.333 [{4 / 3 - shift * np.sqrt(3) / np.sqrt(3):.3f}, {4 / 3 + shift:.3f}]",
    ]
    one = {name: records[:1] for name, records in records_by_model.items()}
    assert "[" not in main_table(COLUMNS, one)


def test_a_column_that_is_compared_with_another_figure():
    records_by_model = {
        "a": [record(0.1, 1.0), record(0.2, 1.0)],
        "b": [record(0.5, 1.0, recall=x) for x in (0.2, 0.3)],
    }
    head, _, line = difference_table(COLUMNS, records_by_model, "a").splitlines()
    assert dict(zip(cells(head), cells(line), strict=True))["recall (%)"] == "10.0 [10.0, 10.0]"


def test_a_column_of_several_values():
    column = COLUMNS[1]
    assert column.cell([1.0, None]) == column.difference([1.0], [None]) == "-"
    assert column.value({"report": {"likelihood": None}}) is None
    assert column.value({}) is None
    assert COLUMNS[2].difference(["exact"], ["exact"]) == "-"
    assert math.isnan(mean_interval([1.0]).low)


def test_a_table_is_as_wide_as_its_cells():
    text = table(("a", "figure"), [("x|y", 1), ("", 12345678)])
    assert text == "| a    | figure   |\n| ---- | -------- |\n| x\\|y | 1        |\n|      | 12345678 |"


def test_a_collapsed_posterior_is_named():
    row = {"val_z_kl": 0.05, "val_a_kl": 40.0, "val_a_kl_above_floor": 0.01, "val_b_kl": 3.0, "z_kl": 0.0}
    z, a = (line.split(": ") for line in collapsed_posteriors(row))
    assert z[:2] == ["z", "KL 0.050 nats on validation"]
    assert z[2] == "the posterior hardly differs from the prior"
    assert a[:2] == ["a", "KL 0.010 nats above its floor on validation"]
    assert a[2] == "the posterior is nearly as close to the prior as possible, although its samples still vary"
    assert collapsed_posteriors({"val_z_kl": float("nan")}) == []


def test_a_bound_and_its_terms():
    """Means weight each batch by its number of examples. The perplexity is per token."""
    batches = [("x", 3), ("y", 1)]

    def step(inputs, targets, number):
        assert inputs == "xy"[number]
        return tf.fill((targets,), -2.0 - number), 4 * targets, {"z_kl": 0.5 + number, "a_kl": 1.0}

    report = bound_report(step, batches)
    assert report["reconstruction_nats"] == pytest.approx((3 * 2.0 + 3.0) / 4)
    assert report["kl"] == pytest.approx({"z_kl": (3 * 0.5 + 1.5) / 4, "a_kl": 1.0})
    assert report["kl_nats"] == pytest.approx(1.75)
    assert report["elbo_nats"] == pytest.approx(-4.0)
    assert report["elbo_perplexity"] == pytest.approx(math.e)
    huge = bound_report(lambda *arguments: (tf.fill((1,), -1e5), 1, {}), batches[:1])
    assert huge["elbo_perplexity"] == math.inf


def test_batches_of_arrays():
    """`array_batches` makes one ordered pass or, for training, epochs whose order depends on seed and epoch number."""
    arrays = {"x": np.arange(14.0).reshape(7, 2), "y": np.arange(7)}
    assert num_array_batches(arrays, 3) == 3
    once = list(array_batches(arrays, 3).as_numpy_iterator())
    assert [batch["y"].tolist() for batch in once] == [[0, 1, 2], [3, 4, 5], [6]]
    assert len(array_batches(arrays, 3)) == 3
    tuned = [array_batches(arrays, 3, first_epoch=x).options().autotune.enabled for x in (None, 0)]
    assert tuned == [False, False]

    def epochs(seed, first):
        batches = list(array_batches(arrays, 3, seed, first).take(6).as_numpy_iterator())
        for batch in batches:
            np.testing.assert_array_equal(batch["x"][:, 0], 2 * batch["y"])
        rows = np.concatenate([batch["y"] for batch in batches])
        return rows[:7].tolist(), rows[7:].tolist()

    first, second = epochs(0, 0)
    assert sorted(first) == sorted(second) == list(range(7))
    assert first != second and first != epochs(1, 0)[0]
    assert epochs(0, 1)[0] == second
