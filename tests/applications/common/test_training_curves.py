"""Tests the plot of training curves: losses, KLs and quality over epochs."""

import numpy as np
import pytest

from applications.common.training_curves import training_curves


def rows(column, values, epochs=None):
    return [{"epoch": epoch, column: value} for epoch, value in zip(epochs or range(1, 9), values, strict=False)]


def test_training_curves(tmp_path):
    histories = {
        "DED": [rows("bleu", [1.0, None, 3.0, float("nan")])],
        "VED": [rows("bleu", [1.0, 2.0]) + rows("val_z_kl", [0.1, 0.2]), rows("bleu", [3.0, 4.0, 5.0])],
        "late": [rows("bleu", [2.0, 2.5], [5, 10])],
    }
    figure = training_curves(histories, {"bleu": "BLEU-2", "unknown": "?"}, tmp_path / "curves.png")
    kl, bleu = figure.axes
    single, several, late = bleu.get_lines()
    assert single.get_xydata().tolist() == [[1, 1], [3, 3]]
    assert several.get_xydata().tolist() == [[1, 2], [2, 3], [3, 5]]
    assert late.get_xydata().tolist() == [[5, 2], [10, 2.5]]
    (band,) = bleu.collections
    assert band.get_datalim(bleu.transData).intervaly[1] == pytest.approx(5.0)
    heights = {tuple(point) for point in band.get_paths()[0].vertices.round(4)}
    assert {(1.0, round(2 + np.sqrt(2), 4)), (1.0, round(2 - np.sqrt(2), 4)), (3.0, 5.0)} <= heights
    assert kl.get_lines()[0].get_xydata().tolist() == [[1, 0.1], [2, 0.2]]
    assert (kl.get_title(), bleu.get_title()) == ("KL of z, validation (nats)", "BLEU-2")
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(shown) == ["DED", "VED (mean ± sd, 2 seeds)", "late"]
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert training_curves({"DED": [rows("bleu", [1.0])]}, {}) is None


def test_the_panels():
    """Panels show the losses, then every KL above its floor, then the metrics of the program."""
    row = {"epoch": 1, "loss": 1.0, "val_loss": 2.0, "z_kl": 1.0, "val_z_kl": 1.0, "val_bleu": 0.5}
    row |= {"val_a_kl": 336.661, "val_a_kl_above_floor": 0.0, "val_lost": None}
    figure = training_curves({"ved": [[row, row | {"epoch": 2}]]}, {"val_bleu": "BLEU", "val_lost": "?"})
    panels = ["KL of a above its floor, validation (nats)", "KL of z, validation (nats)", "BLEU"]
    assert [axes.get_title() for axes in figure.axes[:5]] == [
        "loss, training (nats)", "loss, validation (nats)", *panels,
    ]  # fmt: skip
    assert figure.axes[2].get_lines()[0].get_xydata().tolist() == [[1, 0], [2, 0]]
