"""Figures of a part against a computation by hand, and the draws behind the uncertainty metrics."""

import re

import keras
import numpy as np
import pytest
from program_cases import VQA_CASE
from run_files import read_history
from vqa_cases import run_of

import keras_vattn
from applications.common.training import TrainingRun
from applications.vqa import report as reports
from applications.vqa.answers import vqa_accuracy
from applications.vqa.options import EvaluateVqa
from applications.vqa.report import COLUMNS, evaluate, gradient_norms, predicted, seen, uncertainty, weights_deviation
from keras_vattn import metrics

MCAN = {"architecture": "mcan", "num_heads": 2, "num_layers": 1, "fused_units": 6}


pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("run"), num_draws=4)


def test_the_figures_of_predictions(run):
    part = run.data["test"]
    report, outputs = predicted(run, part)
    log_probabilities = np.concatenate(
        [run.models.prediction(inputs)["log_probabilities"] for (inputs,) in part.batches(run.options, answered=False)]
    )
    votes = part.votes.of_answers(slice(None))
    shares = votes / votes.sum(axis=1, keepdims=True)
    assert report["nll"] == pytest.approx(-np.sum(shares * log_probabilities, axis=1).mean(), rel=1e-5)
    best = [run.codec.answers[index] for index in log_probabilities.argmax(axis=1)]
    assert outputs["answers"] == best
    right = np.array([vqa_accuracy(*row) for row in zip(best, part.questions.votes)])
    assert report["accuracy"]["all"] == pytest.approx(right.mean())
    types = np.array(part.questions.types)
    for name in ("yes/no", "number", "other"):
        assert report["accuracy"][name] == pytest.approx(right[types == name].mean())
    weights = outputs["weights"]
    assert report["entropy"] == pytest.approx(-np.sum(weights * np.log(weights), axis=1).mean(), rel=1e-4)


def test_unknown_answers_are_wrong_and_have_no_likelihood(run):
    part = run.data["test"]
    counts = part.votes.counts.copy()
    part.votes.counts[:3] = 0
    try:
        report, _ = predicted(run, part)
        assert report["num_nll"] == len(part) - 3 and np.isfinite(report["nll"])
    finally:
        part.votes.counts[:] = counts


def test_noise_on_the_features_alone(run):
    """Of the variance that is asked for, times that of the features; the same in every report."""
    part = run.data["train"]
    plain, noisy, again = (
        np.concatenate([inputs["regions"] for (inputs,) in seen(run, part, variance)]) for variance in (0.0, 5.0, 5.0)
    )
    np.testing.assert_array_equal(noisy, again)
    difference = (noisy - plain) / run.codec.regions.scale
    assert difference.std() == pytest.approx(np.sqrt(5.0), rel=0.02) and abs(difference.mean()) < 0.05
    assert run.codec.regions.scale == pytest.approx(plain.std(), rel=0.05)


def test_what_draws(tmp_path):
    run = run_of(tmp_path, model="marginal", num_draws=4)
    found, p_values, scores = uncertainty(run, run.data["test"], 4)
    assert [len(scores[name]) for name in ("predictive_entropy", "mutual_information")] == 2 * [len(p_values)]
    assert set(found) == {"dropout", "attention", "both"} and len(p_values) == len(run.data["test"])
    for figures in found.values():
        assert set(figures["pavpu"]) == {"all", "yes/no", "number", "other"}
        assert figures["num_draws"] == 4 and np.isfinite([figures["nll"], figures["brier"], figures["ece"]]).all()
    assert found["dropout"] != found["both"] != found["attention"]
    # One region is drawn: that is more than what dropout does.
    assert found["attention"]["mutual_information"] > 0
    assert uncertainty(run, run.data["test"], 4)[0] == found
    assert uncertainty(run, run.data["test"], 0) == ({}, {}, {})


@pytest.mark.slow
def test_pavpu_counts_votes(run):
    """As the library's metric has it, of draws that are made alike."""
    part = run.data["test"]
    found, _, _ = uncertainty(run, part, 4)
    batches = part.batches(run.options, answered=False)
    draws = keras_vattn.posterior_predictive(run.models.drawn, batches, 4, seed=0)
    accuracies = np.minimum(part.votes.of_answers(slice(None)) / 3.0, 1.0)
    expected = metrics.pavpu(np.exp(draws["log_probabilities"]), accuracies=accuracies).pavpu
    assert found["attention"]["pavpu"]["all"] == pytest.approx(expected)


def test_pavpu_of_some_questions(run, monkeypatch):
    """Drawn at random from all of the part; their number is a figure of the tables."""
    part = run.data["test"]
    every = uncertainty(run, part, 4)[1]
    monkeypatch.setattr("applications.vqa.report.MAX_UNCERTAIN", len(part) // 2)
    found, p_values, _ = uncertainty(run, part, 4)
    rows = sorted(p_values)
    assert len(rows) == found["both"]["num_questions"] == len(part) // 2
    assert max(rows) > len(rows) and set(rows) < set(every)
    sampled, some = part.sample(len(part) // 2)
    assert sampled.tolist() == rows and some.questions.ids == [part.questions.ids[row] for row in rows]
    np.testing.assert_array_equal(some.votes.of_answers(slice(None)), part.votes.of_answers(rows))
    (column,) = (column for column in COLUMNS if column.title == "questions of PAvPU")
    assert column.value({"report": {"uncertainty": found}}) == len(rows)


def states(run):
    return [variable.numpy() for variable in run.models.training.variables]


@pytest.mark.slow
def test_gradients_and_deviations(tmp_path):
    """A model without a KL has no gradient of one; the larger k, the less weights vary."""
    deviations = []
    for k in (5.0, 1e4):
        run = run_of(tmp_path, model="wc", weibull_k=k, **MCAN)
        deviations.append(weights_deviation(run, run.data["test"]))
        norms, before = gradient_norms(run, run.data["test"]), states(run)
        assert norms["likelihood"] > 0 and norms["kl"] > 0
        assert gradient_norms(run, run.data["test"]) == norms
        assert all(map(np.array_equal, before, states(run)))
    assert deviations[0] > 0.02 and deviations[1] < 1e-3
    run = run_of(tmp_path, model="soft")
    assert gradient_norms(run, run.data["test"])["kl"] == 0.0
    assert weights_deviation(run, run.data["test"]) is None


@pytest.mark.slow
def test_what_a_page_shows(tmp_path):
    """Questions with a verdict; the cards have the weights of other questions."""
    run = run_of(tmp_path, model="wc", num_draws=2, **MCAN)
    part = run.data["test"]
    _, outputs = predicted(run, part)
    shown = reports.shown(run, part, outputs | {"p_values": {}})
    cards = shown.drawn
    rows = [part.questions.ids.index(card["id"]) for card in cards]
    assert len(cards) == reports.NUM_CARDS
    assert len(shown.samples) == min(len(part), reports.NUM_SAMPLES)
    for sample in map(dict, shown.samples):
        count = len(re.findall(rf"\b{sample['answer'].split()[0]} 10", sample["people"]))
        assert sample["judged"] == ("right" if count else "wrong: 0 of 10 people say so")
    for row, card in zip(rows, cards, strict=True):
        assert reports.said(card) == f"{outputs['answers'][row]} {outputs['probabilities'][row]:.2f}"
        np.testing.assert_allclose(card["weights"], outputs["weights"][row], rtol=1e-6)


@pytest.mark.slow
def test_the_noisy_columns(run):
    report, outputs = evaluate(run, run.data["test"], EvaluateVqa("", feature_noise=5.0))
    assert report["noisy"]["variance"] == 5.0 and set(report["noisy"]["uncertainty"]) == set(report["uncertainty"])
    assert report["noisy"]["nll"] != report["nll"]
    assert {0.0 <= figures["auroc"] <= 1.0 for figures in report["noisy"]["detection"].values()} == {True}
    assert len(reports.summary(report)) == 2
    assert "noisy" not in evaluate(run, run.data["test"], EvaluateVqa("", feature_noise=0.0))[0]
    assert len(outputs["p_values"]) == len(run.data["test"])


@pytest.mark.slow
def test_a_warm_start_and_then_q_alone(tmp_path, weights_only, monkeypatch):
    """Four steps of each, one epoch of each; of relaxed q is not trained in the first, and p not in the second."""
    values = {"model": "relaxed", "warm_start": 4, "posterior_steps": 4, "epochs": 3, "keep": "last", "export": False}
    weights, fit = {}, TrainingRun.fit

    def look(run, stage, *data):
        trained = list(run.models.training.trainable_weights)
        after = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: weights.update({epoch + 1: {x.path: x.numpy() for x in trained}})
        )
        stage.fit["callbacks"].append(after)
        fit(run, stage, *data)

    monkeypatch.setattr(TrainingRun, "fit", look)
    VQA_CASE.succeeds(*VQA_CASE.train(tmp_path / "run3", **values))
    assert [row.get("warm_start") for row in read_history(tmp_path / "run3")] == [1.0, 1.0, None]
    VQA_CASE.fails(
        "must be fewer than the 8 steps of the run", *VQA_CASE.train(tmp_path / "run", **values | {"epochs": 2})
    )
    assert not (tmp_path / "run").exists()
    for first, last, is_fixed in ((1, 2, lambda path: not path.startswith("posterior")), (2, 3, lambda path: False)):
        for path, value in weights[last].items():
            assert np.array_equal(value, weights[first][path]) == is_fixed(path), path


@pytest.mark.slow
@pytest.mark.parametrize(("model", "values"), [("variational_enum", {}), ("relaxed", {"warm_start": 3})])
def test_q_alone_after_a_start(model, values, tmp_path, monkeypatch):
    """The steps of the run that goes on are counted, not those of its start; a warm start that is over, once."""
    start, rest = tmp_path / "start", tmp_path / "rest"
    values = {"epochs": 3, "export": False} | values
    of_start = {"model": "relaxed" if model == "relaxed" else "soft", "epochs": 1}
    VQA_CASE.succeeds(*VQA_CASE.train(start, **values | of_start))
    values |= {"start_from": str(start), "posterior_steps": 4}
    monkeypatch.setattr(TrainingRun, "finish", lambda run: None)
    VQA_CASE.succeeds(*VQA_CASE.train(rest, model=model, **values))
    assert [row.get("warm_start") for row in read_history(rest)] == [1.0, None]
