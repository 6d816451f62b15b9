"""Tests reliability diagrams and risk-coverage curves."""

import sys

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from keras_vattn import plots
from keras_vattn.metrics import expected_calibration_error, mutual_information, risk_coverage_area

LABELS = np.random.default_rng(0).integers(3, size=200)
DRAWS = np.random.default_rng(1).dirichlet(np.ones(3), size=(4, 200))


def points(axes):
    """Return the points of each curve, except the diagonal."""
    return [line.get_xydata() for line in axes.lines if not line.get_label().startswith("_")]


def legend(figure):
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def test_a_reliability_diagram_plots_the_bins_of_the_ece(tmp_path):
    figure = plots.reliability_diagram(DRAWS, LABELS, num_bins=5, title="$5", path=tmp_path / "figure.png")
    mean = DRAWS.mean(axis=0)
    accuracy, confidence = calibration_curve(mean.argmax(1) == LABELS, mean.max(1), n_bins=5)
    (curve,) = points(figure.axes[0])
    np.testing.assert_allclose(curve, np.stack([confidence, accuracy], axis=1))
    counts, _ = np.histogram(mean.max(1), bins=5, range=(0.0, 1.0))
    (marks,) = figure.axes[0].collections
    np.testing.assert_allclose(marks.get_sizes(), 400.0 * counts[counts > 0] / len(LABELS))
    assert legend(figure) == [f"ECE {expected_calibration_error(DRAWS, LABELS, 5):.3f}"]
    assert figure.axes[0].get_title() == "$5"
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_risk_coverage_curve_ends_at_the_error_rate():
    models = {"one": DRAWS, "$other": DRAWS[:1]}
    figure = plots.risk_coverage_curve(models, LABELS, mutual_information)
    areas = [risk_coverage_area(draws, LABELS, mutual_information(draws)) for draws in models.values()]
    assert legend(figure) == [f"{name}, area {area:.3f}" for name, area in zip(models, areas, strict=True)]
    for curve, draws, area in zip(points(figure.axes[0]), models.values(), areas, strict=True):
        assert curve[:, 1].mean() == pytest.approx(area)
        error_rate = np.mean(draws.mean(axis=0).argmax(axis=1) != LABELS)
        np.testing.assert_allclose(curve[-1], (1.0, error_rate))
    assert legend(plots.risk_coverage_curve(DRAWS, LABELS)) == [f"area {risk_coverage_area(DRAWS, LABELS):.3f}"]


@pytest.mark.parametrize("plot", [plots.reliability_diagram, plots.risk_coverage_curve])
def test_errors(plot, monkeypatch):
    with pytest.raises(ValueError, match=r"Received: draws.shape=\(200, 3\)"):
        plot(DRAWS[0], LABELS)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"keras_vattn\[plots\]"):
        plot(DRAWS, LABELS)
