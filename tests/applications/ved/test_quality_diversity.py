"""The picture of quality against diversity."""

import pytest

from applications.ved.quality_diversity import quality_diversity


def test_quality_diversity(tmp_path):
    points = {"VED": [(0.2, 3.1, "γ=0.1"), (0.4, 2.8, None)], "$DED$": [(0.1, 3.3, "日")]}
    figure = quality_diversity(points, "BLEU-4", "Dist-2", path=tmp_path / "points.png")
    (axes,) = figure.axes
    assert axes.get_lines()[0].get_xydata().tolist() == [[0.2, 3.1], [0.4, 2.8]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Dist-2", "BLEU-4")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["VED", "$DED$"]
    assert "γ=0.1" in [text.get_text() for text in axes.texts]
    assert (tmp_path / "points.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="at least one point"):
        quality_diversity({"VED": []})
