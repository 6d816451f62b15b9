"""The picture of training: metrics over epochs."""

import numpy as np
import pytest

from applications.common.training_curves import training_curves


def test_training_curves(tmp_path):
    histories = {
        "DED": {"bleu": [1.0, None, 3.0, float("nan")]},
        "VED": [{"bleu": [1.0, 2.0], "dist": [0.1, 0.2]}, {"bleu": [3.0, 4.0, 5.0]}],
        "late": {"epoch": [5, 10], "bleu": [2.0, 2.5]},
    }
    figure = training_curves(
        histories, ["bleu", "dist"], metric_labels={"bleu": "BLEU-2"}, title="curves", path=tmp_path / "curves.png"
    )
    bleu, dist = figure.axes
    single, several, late = bleu.get_lines()
    assert single.get_xydata().tolist() == [[1, 1], [3, 3]]
    assert several.get_xydata().tolist() == [[1, 2], [2, 3], [3, 5]]
    assert late.get_xydata().tolist() == [[5, 2], [10, 2.5]]
    (band,) = bleu.collections
    assert band.get_datalim(bleu.transData).intervaly[1] == pytest.approx(5.0)
    heights = {tuple(point) for point in band.get_paths()[0].vertices.round(4)}
    assert {(1.0, round(2 + np.sqrt(2), 4)), (1.0, round(2 - np.sqrt(2), 4)), (3.0, 5.0)} <= heights
    assert dist.get_lines()[0].get_xydata().tolist() == [[1, 0.1], [2, 0.2]]
    assert bleu.get_title() == "BLEU-2"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "DED",
        "VED (mean ± sd, 2 seeds)",
        "late",
    ]
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_training_curves_errors():
    with pytest.raises(ValueError, match=r"Received: \['blue'\]"):
        training_curves({"DED": {"bleu": [1.0]}}, ["blue"])
    with pytest.raises(ValueError, match=r"metrics=\[\]"):
        training_curves({"DED": {"bleu": [1.0]}}, [])


def test_the_legend_of_many_seeds_fits_the_figure():
    runs = [{"BLEU-2": [1.0, 2.0]}, {"BLEU-2": [1.5, 2.5]}, {"BLEU-2": [1.2, 2.2]}]
    histories = {f"ved_vattn_mean:{gamma}": runs for gamma in (0.001, 0.01, 0.1, 1.0, 10.0)}
    figure = training_curves(histories, ["BLEU-2"])
    figure.canvas.draw()
    extent = figure.legends[0].get_window_extent()
    assert extent.x0 >= 0 and extent.x1 <= figure.bbox.width
