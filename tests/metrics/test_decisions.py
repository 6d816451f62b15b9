"""Tests temperatures, prediction sets and out-of-distribution detection, which turn draws into decisions."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from keras_vattn.metrics import (
    conformal_sets,
    conformal_threshold,
    energy,
    fit_temperature,
    out_of_distribution_detection,
)


def logits_and_labels(num_examples, num_classes=4, seed=0, scale=2.0):
    """Return logits, and labels sampled from the softmax of the logits."""
    generator = np.random.default_rng(seed)
    logits = scale * generator.normal(size=(num_examples, num_classes))
    labels = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
    return logits, labels


def mean_loss(log_temperature, logits, labels):
    log_likelihoods = log_softmax(logits / np.exp(log_temperature), axis=-1)[:, np.arange(len(labels)), labels]
    return np.log(len(logits)) - logsumexp(log_likelihoods, axis=0).mean()


@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
def test_the_temperature_undoes_a_factor_of_the_logits(factor):
    """The fitted temperature is the minimum of the loss that SciPy finds."""
    logits, labels = logits_and_labels(4000)
    result = fit_temperature(factor * logits, labels)
    assert result == pytest.approx(factor, rel=0.06)
    expected = minimize_scalar(mean_loss, bounds=(-4, 4), args=(factor * logits[None], labels), options={"xatol": 1e-9})
    assert result == pytest.approx(np.exp(expected.x), rel=1e-6)


def test_the_temperature_of_draws_fits_their_mean():
    logits, labels = logits_and_labels(500)
    draws = 3.0 * logits + np.random.default_rng(1).normal(size=(6, *logits.shape))
    grid = np.linspace(-3, 3, 601)
    losses = [mean_loss(x, draws, labels) for x in grid]
    start = grid[np.argmin(losses)]
    bounds = (start - 0.01, start + 0.01)
    expected = minimize_scalar(mean_loss, bounds=bounds, args=(draws, labels), options={"xatol": 1e-9})
    assert fit_temperature(draws, labels) == pytest.approx(np.exp(expected.x), rel=1e-6)
    assert fit_temperature(draws, labels) != pytest.approx(fit_temperature(draws[0], labels), rel=1e-2)
    assert fit_temperature(logits[None], labels) == fit_temperature(logits, labels)


def test_without_a_minimum_the_temperature_is_a_limit_of_the_range():
    assert fit_temperature([[1.0, 0.0], [2.0, 3.0]], [0, 1]) == pytest.approx(0.01)
    assert fit_temperature([[1.0, 0.0], [2.0, 3.0]], [1, 0]) == pytest.approx(100.0)
    assert fit_temperature([[1e4, 0.0], [0.0, 1e4]], [0, 1]) == pytest.approx(0.01)


@pytest.mark.parametrize("score", ["lac", "aps"])
@pytest.mark.parametrize(("num_calibration", "alpha"), [(19, 0.2), (50, 0.1), (199, 0.05)])
def test_coverage_over_many_splits(score, num_calibration, alpha):
    """Coverage of an overconfident model is from 1 - alpha to 1 - alpha + 1 / (n + 1), within four standard errors."""
    logits, labels = logits_and_labels(2000)
    probabilities, generator = softmax(3.0 * logits, axis=-1), np.random.default_rng(3)
    covered = []
    for _ in range(400):
        order = generator.permutation(len(labels))
        calibration, new = order[:num_calibration], order[num_calibration:]
        sets = conformal_sets(
            probabilities[None, calibration], labels[calibration], probabilities[None, new], alpha, score
        )
        covered.append(sets[np.arange(len(new)), labels[new]].mean())
    error = 4.0 * np.std(covered) / np.sqrt(len(covered))
    assert 1 - alpha - error <= np.mean(covered) <= 1 - alpha + 1 / (num_calibration + 1) + error
    # With few examples, the interval is more than twice as wide as the error.
    assert error < 0.5 / (num_calibration + 1) or num_calibration > 19


def test_sets_by_hand():
    calibration = np.array([[[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]]])
    new = np.array([[[0.55, 0.3, 0.15], [0.4, 0.35, 0.25]]])
    # LAC scores are 0.1, 0.5, 0.3; k = ceil(4 * 0.75) = 3, so the set contains classes with p(c) >= 0.5.
    assert conformal_sets(calibration, [0, 1, 2], new, 0.25).tolist() == [[True, False, False], [False, False, False]]
    # APS scores are 0.9, 0.5, 0.7, so the set contains the likeliest classes up to a sum of 0.9.
    assert conformal_sets(calibration, [0, 1, 2], new, 0.25, "aps").tolist() == [
        [True, True, False],
        [True, True, False],
    ]
    # k = 4 exceeds the 3 examples, so the set contains all classes.
    assert conformal_sets(calibration, [0, 1, 2], new, 0.1).all()
    threshold = conformal_threshold(calibration, [0, 1, 2], 0.25)
    assert ((1.0 - np.mean(new, axis=0)) <= threshold).tolist() == [[True, False, False], [False, False, False]]
    assert conformal_threshold(calibration, [0, 1, 2], 0.1) == np.inf


def test_sets_depend_on_the_mean_of_the_draws():
    draws = np.random.default_rng(0).dirichlet(np.ones(3), size=(5, 40))
    labels = np.arange(20) % 3
    np.testing.assert_array_equal(
        conformal_sets(draws[:, :20], labels, draws[:, 20:]),
        conformal_sets(draws.mean(0, keepdims=True)[:, :20], labels, draws.mean(0, keepdims=True)[:, 20:]),
    )


def test_a_rank_is_not_rounded_up():
    """The rank stays 3, although 10 * (1 - 0.7) is slightly above 3 in floating point."""
    assert 30 * (1 - 0.3) == 21.0 and 10 * (1 - 0.7) > 3
    confidences = np.linspace(0.55, 0.95, 9)
    calibration = np.stack([confidences, 1 - confidences], axis=-1)[None]
    sets = conformal_sets(calibration, np.zeros(9, int), calibration, alpha=0.7)
    assert sets[:, 0].sum() == 3


@st.composite
def scores(draw):
    values = st.lists(st.integers(-3, 3), min_size=1, max_size=30)
    return np.array(draw(values), float), np.array(draw(values), float)


@hypothesis.given(scores())
@hypothesis.settings(max_examples=100)
def test_detection_matches_scikit_learn(pair):
    """Scores are small integers, so many scores are equal."""
    in_scores, out_scores = pair
    labels = np.repeat([0, 1], [len(in_scores), len(out_scores)])
    result = out_of_distribution_detection(in_scores, out_scores)
    assert result["auroc"] == pytest.approx(roc_auc_score(labels, np.concatenate(pair)))
    assert result["aupr"] == pytest.approx(average_precision_score(labels, np.concatenate(pair)))
    false_rate, recall, _ = roc_curve(labels, np.concatenate(pair), drop_intermediate=False)
    assert result["fpr95"] == pytest.approx(false_rate[recall >= 0.95].min())


def test_energy():
    logits = np.random.default_rng(0).normal(size=(2, 5, 3))
    np.testing.assert_allclose(energy(logits), -logsumexp(logits, axis=-1), rtol=1e-12)
    np.testing.assert_allclose(energy(logits, 2.0), -2.0 * logsumexp(logits / 2.0, axis=-1), rtol=1e-12)


def test_errors():
    logits, draws = np.zeros((3, 2)), np.full((1, 3, 2), 0.5)
    for call, message in (
        (lambda: fit_temperature(logits[0], [0, 0]), r"Received: logits.shape=\(2,\)"),
        (lambda: fit_temperature(logits * np.nan, [0] * 3), "6 values are not finite"),
        (lambda: fit_temperature(logits, [0, 1, 2]), "Received: labels from 0 to 2"),
        (lambda: conformal_sets(draws, [0, 1], draws), r"Received: labels.shape=\(2,\)"),
        (lambda: conformal_sets(draws, [0, 1, 0], draws, alpha=1), "Received: alpha=1"),
        (lambda: conformal_sets(draws, [0, 1, 0], draws, score="raps"), "Received: score='raps'"),
        (lambda: conformal_sets(draws, [0, 1, 0], np.full((1, 3, 4), 0.25)), "Received: 2 and 4 classes"),
        (lambda: conformal_sets(draws, [0, 1, 0], draws[0]), r"Received: draws.shape=\(3, 2\)"),
        (lambda: out_of_distribution_detection([], [1.0]), r"Received: in_scores.shape=\(0,\)"),
        (lambda: out_of_distribution_detection([1.0], [np.nan]), r"out_scores.shape=\(1,\) with 1 NaN"),
        (lambda: energy(logits, 0.0), "Received: temperature=0.0"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
