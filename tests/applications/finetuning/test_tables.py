"""Tests Table 5 of Fan et al. 2020, and the summary and samples of each kind of task."""

import types

import numpy as np
import pytest
from application_cases import Compared, tables_of
from finetuning_cases import APPLICATION

from applications.finetuning.data import Texts
from applications.finetuning.spans import Questions


@pytest.mark.parametrize("task", ["cola", "rte", "squad1"])
def test_table_5(task, tmp_path):
    figures = {"matthews": 0.5, "accuracy": 0.75, "exact": 0.25, "f1": 0.375}
    options = APPLICATION.program.commands["compare"](out=str(tmp_path), models=("deterministic", "wc"), seeds=1)
    options.train_values = {"task": task}
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
    options.train_values = {"task": "classes"}
    assert APPLICATION.layouts["fan"](Compared(APPLICATION, changed_out(options, tmp_path / "own"), {})) == []


def changed_out(options, out):
    options.out = str(out)
    return options


def samples_of(part, labels=None, **outputs):
    run = types.SimpleNamespace(codec=types.SimpleNamespace(labels=labels))
    return APPLICATION.shown(run, types.SimpleNamespace(part=part), outputs).samples


def test_samples_are_judged():
    """Samples of classes and spans are marked as right or wrong; samples of scores are not."""
    classes = Texts(["one", "two"], None, ["yes", "no"])
    first, second = samples_of(classes, ["no", "yes"], answers=["yes", "yes"], spread=np.array([0.1, 0.2]))
    assert first == [("text", "one"), ("label", "yes"), ("predicted", "yes"), ("unsure", "0.100"), ("judged", "right")]
    assert second[-1] == ("judged", "wrong: no is right")
    (score,) = samples_of(Texts(["one"], ["two"], [2.5]), answers=["2.400"])
    assert score == [("text", "one"), ("text", "two"), ("label", "2.5"), ("predicted", "2.400")]
    references = [[("The dog", 0), ("dog", 4)], []]
    questions = Questions(["1", "2"], ["who?", "when?"], ["The dog", "The dog"], references)
    assert [sample[-1] for sample in samples_of(questions, answers=["a dog", "dog"])] == [
        ("judged", "right"),
        ("judged", "wrong: no answer is right"),
    ]


def test_the_first_sentences():
    draws = {"num_draws": 20, "task": {"accuracy": 0.5}, "nll": 0.5}
    report = {"num_examples": 1200, "task": {"accuracy": 0.75, "matthews": 0.5, "f1": 0.7}, "nll": 0.625}
    assert APPLICATION.summary(report | {"draws": draws}) == [
        "900 of 1,200 examples are right.",
        "With 20 draws: 600 of 1,200 right, NLL 0.500 nats (without draws: 0.625).",
    ]
    (score,) = APPLICATION.summary({"num_examples": 10, "task": {"pearson": 0.5, "spearman": 0.4, "rmse": 1.0}})
    assert score == "Predicted and correct scores of 10 examples correlate, Pearson 0.500."
    (spans,) = APPLICATION.summary({"num_examples": 10, "task": {"exact": 0.5, "f1": 0.75}})
    assert spans == "5 of 10 answers are right; F1 75.0%."
