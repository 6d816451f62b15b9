import sys

import numpy as np
import pytest

from keras_vattn import plots
from keras_vattn.plots import text

PNG = b"\x89PNG\r\n\x1a\n"


def weights(rows, columns):
    return np.random.default_rng(0).dirichlet(np.ones(columns), size=rows)


def texts(figure):
    return [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))]


def colors(figure, axes):
    return figure.axes[axes].get_images()[0].get_array()


def test_heat_map_shows_the_weights_and_the_tokens(tmp_path):
    values = weights(2, 3)
    path = tmp_path / "alignment.png"
    figure = plots.alignment_heat_map(values, ["ein", "Hund", "."], ["a", "dog"], title="one", path=path)
    axes = figure.axes[0]
    np.testing.assert_allclose(colors(figure, 0), values)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["ein", "Hund", "."]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "dog"]
    assert axes.get_images()[0].get_clim() == (0.0, 1.0)
    assert path.read_bytes().startswith(PNG)
    assert [entry.name for entry in tmp_path.iterdir()] == ["alignment.png"]


def test_heat_map_of_several_panels():
    panels = [weights(2, 3), weights(4, 2)]
    figure = plots.alignment_heat_map(
        panels, [["a", "b", "c"], ["d", "e"]], [["1", "2"], list("3456")], panel_titles=["soft", "hard"]
    )
    for index, panel in enumerate(panels):
        np.testing.assert_allclose(colors(figure, index), panel)
    assert {"soft", "hard"} <= set(texts(figure))
    shared = plots.alignment_heat_map(
        np.stack([weights(2, 3)] * 2), ["a", "b", "c"], ["1", "2"], spread=[panels[0]] * 2
    )
    assert [len(axes.collections) for axes in shared.axes[:2]] == [1, 1]


def test_other_weights_over_the_weights():
    """Cells are red if the first weight is larger, blue if the other weight is larger, and grey if both are equal."""
    first, other = np.array([[1.0, 0.0, 0.25]]), np.array([[0.0, 1.0, 0.25]])
    figure = plots.alignment_heat_map([first, first], ["a", "b", "c"], ["d"], other=[other, None])
    assert colors(figure, 0)[0].tolist() == [[1, 0, 0], [0, 0, 1], [0.75, 0.75, 0.75]]
    np.testing.assert_allclose(colors(figure, 1), first)
    assert plots.alignment_heat_map(first, ["a", "b", "c"], ["d"], other=other).axes[-1].get_ylabel() == "weight"
    with pytest.raises(ValueError, match=r"weights\.shape=\(1, 3\), other\.shape=\(1, 2\)"):
        plots.alignment_heat_map(first, ["a", "b", "c"], ["d"], other=weights(1, 2))


def test_many_panels_wrap_into_rows():
    figure = plots.alignment_heat_map([weights(20, 20)] * 5, ["s"] * 20, ["t"] * 20, panel_titles=list("abcde"))
    assert figure.get_figwidth() < 20
    assert len({round(axes.get_position().y0, 3) for axes in figure.axes[:5]}) == 3


def test_panels_of_one_row_stay_together():
    weights = [np.eye(3)] * 6
    figure = plots.alignment_heat_map(weights, list("abc"), list("xyz"), panels_per_row=2)
    *panels, _ = figure.axes
    assert len({round(axes.get_position().y0, 6) for axes in panels}) == 3
    assert len({round(axes.get_position().x0, 6) for axes in panels}) == 2
    with pytest.raises(ValueError, match="`panels_per_row` must be"):
        plots.alignment_heat_map(weights, list("abc"), list("xyz"), panels_per_row=0)


def test_no_token_is_a_formula_blank_or_endless(tmp_path):
    tokens = ["$\\frac$", " ", "\n", "Donaudampfschifffahrtsgesellschaftskapitän", "ελληνικά", "русский", "كان"]
    figure = plots.alignment_heat_map(weights(1, 7), tokens, ["$"], title="$x", path=tmp_path / "a.png")
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == ["$\\frac$", "␣", "↵", "Donaudampfschifffahrtsg…", "ελληνικά", "русский", "كان"]


def test_letters_without_a_font_are_spelled_out(tmp_path, monkeypatch):
    plain = text._font_with
    monkeypatch.setattr(text, "_font_with", lambda letter: None if letter == "年" else plain(letter))
    figure = plots.alignment_heat_map(weights(1, 2), ["5年", "x"], ["年"], title="年", path=tmp_path / "a.png")
    assert {"5[5E74]", "[5E74]"} <= set(texts(figure))


def test_a_failed_write_leaves_the_old_picture(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    path = tmp_path / "a.png"
    path.write_bytes(b"old")

    def full_disk(self, file, **options):
        file.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full_disk)
    with pytest.raises(OSError, match=r"No space left.*a\.png"):
        plots.alignment_heat_map(weights(1, 2), ["a", "b"], ["c"], path=path)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.png"]


def test_heat_map_errors():
    with pytest.raises(ValueError, match=r"Received: weights\.shape=\(2, 3\)"):
        plots.alignment_heat_map(weights(2, 3), ["a", "b"], ["c", "d"])
    with pytest.raises(ValueError, match=r"spread\.shape=\(1, 2\)"):
        plots.alignment_heat_map(weights(2, 2), ["a", "b"], ["c", "d"], spread=weights(1, 2))
    with pytest.raises(ValueError, match="2 panels of weights, 1 sources"):
        plots.alignment_heat_map([weights(1, 1)] * 2, [["a"]], ["c"])
    with pytest.raises(ValueError, match="Received: weights of shapes"):
        plots.alignment_heat_map(np.zeros(3), ["a"], ["c"])
    with pytest.raises(ValueError, match="non-empty"):
        plots.alignment_heat_map(np.zeros((0, 1)), ["a"], [])


def test_a_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "keras_vattn\[plots\]"'):
        plots.alignment_heat_map(weights(1, 2), ["a", "b"], ["c"])
