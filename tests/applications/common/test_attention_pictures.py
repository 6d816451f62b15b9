"""Tests the panels in pictures of attention weights."""

import numpy as np

from applications.common.attention_pictures import draw_alignments
from applications.common.shown import Alignment


def alignment(*kinds, heads=()):
    generator, words = np.random.default_rng(len(kinds)), ["a", "b"]
    weights = {kind: generator.dirichlet(np.ones(2), size=(*heads, 3)) for kind in kinds}
    return Alignment("", ["c", "d", "<end>"], weights, source=words)


def panels_of(figure):
    return [(axes.texts[-1].get_text(), axes.get_images()[0].get_array()) for axes in figure.axes if axes.get_images()]


def test_models_are_drawn_side_by_side(tmp_path):
    """Each example has a row of panels. Missing weights have no panel. Prior and posterior share a panel."""
    first, other = alignment("prior", "posterior", "exact"), alignment("mean")
    figure = draw_alignments({"variational": [first] * 2, "wc": [other] * 2}, tmp_path / "x.png")
    panels = panels_of(figure)
    titles = ["variational: prior (red), posterior (blue)", "variational: exact", "wc: mean"]
    assert [title for title, _ in panels] == 2 * titles
    assert len({round(axes.get_position().y0, 6) for axes in figure.axes[:6]}) == 2
    (_, both), (_, exact), (_, mean) = panels[:3]
    np.testing.assert_allclose(both[..., 0], 1.0 - first.weights["posterior"])
    np.testing.assert_allclose(both[..., 2], 1.0 - first.weights["prior"])
    np.testing.assert_allclose(exact, first.weights["exact"])
    np.testing.assert_allclose(mean, other.weights["mean"])
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_heads_are_drawn_as_their_mean():
    alignment_of_heads = alignment("second layer", heads=(4, 2))
    ((title, drawn),) = panels_of(draw_alignments({"": [alignment_of_heads]}, None))
    assert title == "second layer"
    np.testing.assert_allclose(drawn, alignment_of_heads.weights["second layer"].mean(axis=(0, 1)))
