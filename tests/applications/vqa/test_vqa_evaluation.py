"""Tests metrics and uncertainties against direct computations, and the noise on image features."""

import keras
import numpy as np
import pytest
from program_cases import VQA_CASE
from run_files import read_history
from vqa_cases import run_of

from applications.common.training import TrainingRun
from applications.vqa.answers import vqa_accuracy
from applications.vqa.report import predicted, questions_with_noise, uncertainty, weights_deviation

MCAN = {"architecture": "mcan", "num_heads": 2, "num_layers": 1, "fused_units": 6}


pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("run"), num_draws=4)


def test_the_figures_of_predictions(run):
    part = run.data["test"]
    report, outputs = predicted(run, part)
    log_probabilities = np.concatenate(
        [run.models.prediction(inputs)["log_probabilities"] for (inputs,) in part.questions_in_order(run.options)]
    )
    votes = part.votes.toarray()
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


def test_feature_noise(run):
    """The noise has the requested variance relative to the features, and every report uses the same noise."""
    part = run.data["train"]
    plain, noisy, again = (
        np.concatenate([inputs["regions"] for (inputs,) in questions_with_noise(run, part, variance)])
        for variance in (0.0, 5.0, 5.0)
    )
    np.testing.assert_array_equal(noisy, again)
    difference = (noisy - plain) / run.codec.regions.scale
    assert difference.std() == pytest.approx(np.sqrt(5.0), rel=0.02) and abs(difference.mean()) < 0.05
    assert run.codec.regions.scale == pytest.approx(plain.std(), rel=0.05)


@pytest.mark.slow
def test_kinds_of_draws(tmp_path):
    run = run_of(tmp_path, model="marginal", num_draws=4)
    report, p_values = uncertainty(run, run.data["test"], 4)
    assert set(report) == {"dropout", "attention", "both"} and len(p_values) == len(run.data["test"])
    for figures in report.values():
        assert set(figures["pavpu"]) == {"all", "yes/no", "number", "other"}
        assert figures["num_draws"] == 4 and np.isfinite([figures["nll"], figures["brier"], figures["ece"]]).all()
    # Draws of the attention give different predictions, so there is mutual information.
    assert report["attention"]["mutual_information"] > 0
    samplers = {}
    noisy, again = (uncertainty(run, run.data["test"], 4, 5.0, samplers)[0] for _ in range(2))
    assert uncertainty(run, run.data["test"], 4, samplers=samplers)[0] == report and again == noisy != report
    assert uncertainty(run, run.data["test"], 0) == ({}, {})


@pytest.mark.slow
def test_pavpu_of_some_questions(run, monkeypatch):
    """PAvPU uses a random sample of the split if the split has more than MAX_UNCERTAIN questions."""
    part = run.data["test"]
    monkeypatch.setattr("applications.vqa.report.MAX_UNCERTAIN", len(part) // 2)
    report, p_values = uncertainty(run, part, 4)
    rows = sorted(p_values)
    assert len(rows) == report["both"]["num_questions"] == len(part) // 2 < max(rows)
    sampled, some = part.sample(len(part) // 2)
    assert sampled.tolist() == rows and some.questions.ids == [part.questions.ids[row] for row in rows]
    np.testing.assert_array_equal(some.votes.toarray(), part.votes[rows].toarray())


@pytest.mark.slow
def test_a_larger_k_gives_less_weight_deviation(tmp_path):
    runs = [run_of(tmp_path, model="wc", weibull_k=k, **MCAN) for k in (5.0, 1e4)]
    deviations = [weights_deviation(run, run.data["test"]) for run in runs]
    assert deviations[0] > 0.02 and deviations[1] < 1e-3
    run = run_of(tmp_path, model="soft")
    assert weights_deviation(run, run.data["test"]) is None


@pytest.mark.slow
def test_warm_start_and_posterior_steps(tmp_path, weights_only, monkeypatch):
    """Each phase takes one epoch of four steps. The first phase trains p; the second trains q with p fixed."""
    values = {"model": "relaxed", "warm_start": 4, "posterior_steps": 4, "epochs": 3, "keep": "last", "export": False}
    weights, fit = {}, TrainingRun.fit

    def look(run, batches_from, valid, callbacks, score):
        trained = list(run.models.training.trainable_weights)
        after = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: weights.update({epoch + 1: {x.path: x.numpy() for x in trained}})
        )
        fit(run, batches_from, valid, [*callbacks, after], score)

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
