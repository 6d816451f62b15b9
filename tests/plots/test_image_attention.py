import numpy as np
import pytest

from keras_vattn import plots

LEFT, RIGHT, MIDDLE = [0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0], [0.25, 0.0, 0.75, 1.0]
HALVES = [LEFT, RIGHT]
WHITE = np.full((4, 8, 3), 255, np.uint8)
# Brightness of a white image under the grey fog, through which a fifth of the image is visible.
FOGGY = 0.2 + 0.8 * 0.38


def pixels(figure, panel=0):
    return np.asarray(figure.axes[panel].get_images()[0].get_array())


def texts(axes):
    return [text.get_text() for text in axes.texts]


def bounds(axes):
    return [patch.get_bbox().extents.tolist() for patch in axes.patches]


def test_fog_is_clear_on_attended_regions(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (4, 8, 3)).astype(np.uint8)
    path = tmp_path / "attention.png"
    figure = plots.image_attention(image, [1.0, 0.0], HALVES, path=path)
    np.testing.assert_array_equal(pixels(figure)[:, :4], image[:, :4])
    expected = 0.2 * image[:, 4:] + 0.8 * 0.38 * 255
    np.testing.assert_allclose(pixels(figure)[:, 4:], expected, atol=0.5)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["attention.png"]


def test_weights_of_overlapping_boxes_add_up_whatever_their_areas():
    figure = plots.image_attention(WHITE, [0.16, 0.2, 0.64], [LEFT, MIDDLE, [0.0, 0.0, 1.0, 1.0]])
    total_weights = np.repeat([0.16 + 0.64, 0.16 + 0.2 + 0.64, 0.2 + 0.64, 0.64], 2)
    expected = 255 * (FOGGY + (1 - FOGGY) * np.sqrt(total_weights))
    np.testing.assert_allclose(pixels(figure), np.broadcast_to(expected[None, :, None], WHITE.shape), atol=0.5)


def test_panels_share_one_scale():
    figure = plots.image_attention(WHITE, [[0.8, 0.2], [0.4, 0.2]], HALVES)
    assert pixels(figure)[0, 0, 0] == 255
    assert pixels(figure, 1)[0, 0, 0] == pytest.approx(255 * (FOGGY + (1 - FOGGY) * np.sqrt(0.5)), abs=0.5)
    assert pixels(figure, 0)[0, 7, 0] == pixels(figure, 1)[0, 7, 0]
    bar = figure.axes[-1]
    assert bar.get_ylabel() == "weight"
    assert [label.get_text() for label in bar.get_yticklabels()] == ["0", "0.80"]


def test_the_largest_weight_is_outlined_and_written():
    boxes = [[0.0, 0.0, 0.25, 0.5], [0.25, 0.5, 1.0, 1.0]]
    figure = plots.image_attention(WHITE, [[0.3, 0.7], [0.5, 0.5]], boxes, spread=[[0.1, 0.25], [0.1, 0.1]])
    outlined, undecided, _ = figure.axes
    # Pixel 0 extends from -0.5 to 0.5.
    assert bounds(outlined) == [[1.5, 1.5, 7.5, 3.5]]
    assert texts(outlined) == ["0.70 ± 0.25"]
    assert not bounds(undecided) and not texts(undecided)


def test_regions_of_padding_and_of_less_than_a_pixel():
    padded = plots.image_attention(WHITE, [0.7, 0.3, 0.0], [*HALVES, [0.0, 0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(pixels(padded), pixels(plots.image_attention(WHITE, [0.7, 0.3], HALVES)))
    narrow = plots.image_attention(WHITE, [0.5, 0.5], [[0.3, 0.0, 0.31, 1.0], [0.99, 0.0, 1.0, 1.0]])
    assert np.flatnonzero((pixels(narrow) == 255).all(axis=(0, 2))).tolist() == [2, 7]
    no_attention = plots.image_attention(WHITE, [0.0, 0.0], HALVES)
    assert pixels(no_attention) == pytest.approx(255 * FOGGY, abs=0.5)


def test_every_panel_has_its_image_regions_and_title(tmp_path):
    tall = np.zeros((8, 2, 3), np.uint8)
    figure = plots.image_attention(
        [WHITE, tall], [[1.0], [0.2, 0.8]], [[LEFT], HALVES], ["$what$\nred", None], title="$", path=tmp_path / "a.png"
    )
    assert [axes.get_title() for axes in figure.axes[:2]] == ["$what$\nred", ""]
    assert [pixels(figure, panel).shape for panel in (0, 1)] == [WHITE.shape, tall.shape]
    assert bounds(figure.axes[1]) == [[0.5, -0.5, 1.5, 7.5]]


def position(axes):
    box = axes.get_position()
    return round(box.x0, 4), round(box.y0, 4)


def test_rows_have_labels_and_continue_below_together():
    words = ["a", "red", "ring"]
    figure = plots.image_attention(
        WHITE, [[0.5, 0.5]] * 3 + [[0.9, 0.1]] * 3, HALVES, words, ["prior", "posterior"], panels_per_row=2
    )
    *panels, _ = figure.axes
    assert [axes.get_title() for axes in panels] == [*words, "", "", ""]
    assert [[text for text in texts(axes) if text[0] == "p"] for axes in panels] == [
        ["prior"], [], ["prior"], ["posterior"], [], ["posterior"]
    ]  # fmt: skip
    (x, y), (right, same), *_ = positions = [position(axes) for axes in panels]
    heights = [y for _, y in positions]
    assert x < right and y == same
    assert [x for x, _ in positions] == [x, right, x] * 2
    # Panel rows from the top: prior and posterior of the first two words, then of the third word.
    assert heights[0] > heights[3] > heights[2] > heights[5] and heights[3] == heights[4]


def test_many_panels_wrap_within_a_page():
    figure = plots.image_attention(WHITE, [[0.9, 0.1]] * 20, HALVES, ["red 0.83, p = 0.07, unsure"] * 20)
    assert figure.get_figwidth() < 17
    *panels, _ = figure.axes
    assert len({position(axes)[1] for axes in panels}) == 4
    figure.canvas.draw()
    for axes in figure.axes:
        extent = axes.get_tightbbox()
        assert extent.x0 >= 0 and extent.y0 >= 0 and extent.x1 <= figure.bbox.width and extent.y1 <= figure.bbox.height


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"images": WHITE / 255}, r"shape \(4, 8, 3\) and dtype float64"),
        ({"images": WHITE[:, :, :1]}, r"shape \(4, 8, 1\) and dtype uint8"),
        ({"images": [WHITE] * 3}, "`images` must be one array, or 2 arrays, one per panel. Received: 3 arrays"),
        ({"images": WHITE[:, :, 0]}, r"`images` must be a non-empty array of shape \(height, width, 3\)"),
        ({"weights": []}, r"`weights` must be a non-empty array of shape \(regions,\)"),
        ({"weights": [[0.5, 0.5], [1.0]]}, r"each of 1 weights. Received: boxes.shape=\(2, 4\)"),
        ({"weights": [[1.5, -0.5], [0.5, 0.5]]}, "at least 0. Received: weights="),
        ({"weights": [[np.nan, 0.5], [0.5, 0.5]]}, "Weights must be finite"),
        ({"boxes": [[0.0, 0.0, 8.0, 4.0], RIGHT]}, r"in \[0, 1\]"),
        ({"boxes": [[0.5, 0.0, 0.5, 1.0], RIGHT]}, "x0 < x1"),
        ({"boxes": [[0.0, 0.5, 1.0, 0.2], RIGHT]}, "y0 < y1"),
        ({"spread": [0.1, 0.1, 0.1]}, r"spread.shape=\(3,\)"),
        ({"titles": ["one"]}, "2 panels, row_labels=None, 1 titles"),
        ({"row_labels": ["prior", "posterior"], "titles": ["one", "two"]}, "2 titles"),
        ({"row_labels": ["a", "b", "c"]}, r"row_labels=\['a', 'b', 'c'\]"),
        ({"panels_per_row": 0}, "`panels_per_row` must be"),
    ],
)
def test_errors(changed, message):
    arguments = {"images": WHITE, "weights": [[0.5, 0.5], [0.1, 0.9]], "boxes": HALVES}
    with pytest.raises(ValueError, match=message):
        plots.image_attention(**(arguments | changed))
