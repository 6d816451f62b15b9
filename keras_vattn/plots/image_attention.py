import numpy as np

from keras_vattn.plots.figure import finish, new_figure, require_matplotlib
from keras_vattn.plots.text import text_width, write
from keras_vattn.support.validation import positive_integer

# The grey level of the fog over regions without attention, and the fraction of the image that shows through.
_FOG, _SEEN = 0.38, 0.2
_OUTLINE = "#E69F00"


def image_attention(
    images,
    weights,
    boxes,
    titles=None,
    row_labels=None,
    title=None,
    spread=None,
    panels_per_row=None,
    path=None,
    dpi=150,
):
    """Plot images with attention over regions: attended regions are clear, and grey fog covers the rest.

    The weight of a pixel is the sum of the weights of all regions that contain the pixel. The fog decreases with the
    square root of the pixel weight, and vanishes at the largest pixel weight in the figure. An outline marks the region
    with the largest weight, and the weight is printed below the image. If several regions tie, both are omitted.

    Args:
        images: One (H, W, 3) uint8 array for all panels, or a sequence of P arrays, which may differ in size.
        weights: Sequence of P arrays (R,), the weights of the regions in each panel; or one array for one panel.
        boxes: One (R, 4) array for all panels, or a sequence of P arrays, with the corners x0, y0, x1, y1 in [0, 1].
            The box of a region with weight 0, such as padding, may be empty.
        titles: List of strings, one per panel, such as the generated words. With `row_labels`, one per column. Defaults
            to `None`.
        row_labels: List of L strings, or `None`. With labels, the panels fill L rows of P / L panels each, for instance
            a row of priors above a row of posteriors. Defaults to `None`.
        title: Title of the figure, or `None`. Defaults to `None`.
        spread: Standard deviations of the weights over samples, with the shape of `weights`, or `None`. The figure
            shows the deviation of the largest weight. Defaults to `None`.
        panels_per_row: Number of panels in a row, or `None` for rows that fit on a page. Longer rows continue below, in
            blocks of L rows. Defaults to `None`.
        path: Path of a PNG file to write (atomically), or `None`. Defaults to `None`.
        dpi: Dots per inch of the file. Defaults to 150.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If the shapes do not match, a weight is negative or not finite, a box lies outside [0, 1], or a box
            with a positive weight is empty.
        ImportError: If matplotlib is not installed.

    Example:

    >>> import numpy as np
    >>> image = np.full((8, 8, 3), 200, "uint8")
    >>> halves = [[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]]
    >>> weights, titles = [[0.9, 0.1], [0.2, 0.8]], ["left", "right"]
    >>> figure = keras_vattn.plots.image_attention(image, weights, halves, titles)
    >>> [axes.get_title() for axes in figure.axes[:2]]
    ['left', 'right']

    Reference:
        Xu et al. 2015, figure 3; Fan et al. 2020, figure 1.
    """
    require_matplotlib()
    panels = _per_panel("weights", weights, 1, "(regions,)")
    num_panels = len(panels)
    images = _per_panel("images", images, 3, "(height, width, 3)", num_panels)
    boxes = _per_panel("boxes", boxes, 2, "(regions, 4)", num_panels)
    spreads = [None] * num_panels if spread is None else _per_panel("spread", spread, 1, "(regions,)", num_panels)
    for panel in zip(images, panels, boxes, spreads, strict=True):
        _check(*panel)
    num_rows = 1 if row_labels is None else len(row_labels)
    num_columns = num_panels // max(num_rows, 1)
    titles = [""] * num_columns if titles is None else [text or "" for text in titles]
    if num_rows * num_columns != num_panels or len(titles) != num_columns:
        raise ValueError(
            "Each row label needs the same number of panels, and each column needs one title. Received: "
            f"{num_panels} panels, row_labels={row_labels!r}, {len(titles)} titles"
        )
    positive_integer("panels_per_row", panels_per_row, optional=True)

    lines = [line for text in titles for line in text.split("\n")]
    side = min(2.4, max(1.6, 14.0 / (panels_per_row or num_columns)))  # inches
    height = side * min(1.5, max(image.shape[0] / image.shape[1] for image in images))
    slot = max(side, 0.085 * max(map(text_width, lines))) + 0.12
    left, footer_height, header = (0.3 if row_labels else 0.12), 0.24, (0.35 if title else 0.1)
    above = 0.08 + 0.17 * max(len(text.split("\n")) for text in titles) if any(titles) else 0.0
    across = min(num_columns, panels_per_row or max(1, int(15.0 // slot)))
    block_height = above + num_rows * (height + footer_height)
    figure_width = max(left + across * slot + 1.0, 0.3 + 0.1 * text_width(title or ""))
    figure_height = header + -(-num_columns // across) * block_height
    figure = new_figure(figure_width, figure_height)

    lights = [_light(*panel) for panel in zip(images, panels, boxes, strict=True)]
    brightest = max(light.max() for light in lights) or 1.0
    for index, (image, panel, panel_boxes, deviation, light) in enumerate(
        zip(images, panels, boxes, spreads, lights, strict=True)
    ):
        row, column = divmod(index, num_columns)
        down, right = divmod(column, across)
        top = header + down * block_height + above + row * (height + footer_height)
        x, y = left + right * slot + (slot - side) / 2, figure_height - top - height
        axes = figure.add_axes((x / figure_width, y / figure_height, side / figure_width, height / figure_height))
        clear = _SEEN + (1.0 - _SEEN) * np.sqrt(light / brightest)[:, :, None]
        axes.imshow((clear * image + (1.0 - clear) * 255.0 * _FOG).round().astype("uint8"))
        axes.set_axis_off()
        _outline_largest(axes, image.shape, panel, panel_boxes, deviation)
        if row == 0 and titles[column]:
            write(axes.set_title, titles[column], fontsize=10, pad=3)
        if row_labels and right == 0:
            write(
                axes.text, -0.04, 0.5, row_labels[row], transform=axes.transAxes, rotation=90, ha="right", va="center"
            )
    _color_bar(figure, brightest, (left + across * slot + 0.15) / figure_width, header + above, height)
    if title:
        write(figure.text, 0.1 / figure_width, 1.0 - 0.1 / figure_height, title, ha="left", va="top", fontsize=12)
    return finish(figure, path, dpi)


def _outline_largest(axes, shape, weights, boxes, spread):
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    largest = weights.argmax()
    if np.isclose(weights, weights[largest], rtol=1e-5, atol=0.0).sum() > 1:
        return
    x0, y0, x1, y1 = boxes[largest] * (shape[1], shape[0], shape[1], shape[0]) - 0.5
    outline = Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, edgecolor=_OUTLINE, linewidth=1.6)
    outline.set(clip_on=False, path_effects=[withStroke(linewidth=3.2, foreground="white")])
    axes.add_patch(outline)
    text = f"{weights[largest]:.2f}" + ("" if spread is None else f" ± {spread[largest]:.2f}")
    axes.text(0.5, -0.02, text, transform=axes.transAxes, ha="center", va="top", fontsize=8)


def _color_bar(figure, brightest, x, top, height):
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    figure_width, figure_height = figure.get_size_inches()
    axes = figure.add_axes((x, 1.0 - (top + height) / figure_height, 0.15 / figure_width, height / figure_height))
    greys = LinearSegmentedColormap.from_list("fog", [str(_SEEN + (1.0 - _SEEN) * _FOG), "1.0"])
    bar = figure.colorbar(ScalarMappable(PowerNorm(0.5, 0.0, brightest), greys), cax=axes, label="weight")
    bar.set_ticks([0.0, brightest], labels=["0", f"{brightest:.2f}"])


def _light(image, weights, boxes):
    """Return the weights of the pixels, (H, W)."""
    height, width = image.shape[:2]
    light = np.zeros((height, width))
    for weight, (x0, y0, x1, y1) in zip(weights, boxes, strict=True):
        left, top = min(round(x0 * width), width - 1), min(round(y0 * height), height - 1)
        # Without `min` and `max`, a small region could contain no pixel.
        light[top : max(round(y1 * height), top + 1), left : max(round(x1 * width), left + 1)] += weight
    return light


def _per_panel(name, values, ndim, shape, num_panels=None):
    values = [np.asarray(value) for value in values]
    if values and all(value.ndim == ndim - 1 for value in values):
        values = [np.stack(values)]
    if not values or any(value.ndim != ndim or not value.size for value in values):
        raise ValueError(
            f"`{name}` must be a non-empty array of shape {shape}, or a sequence of such arrays. "
            f"Received: {name} of shapes {[value.shape for value in values]}"
        )
    if num_panels is not None and len(values) not in (1, num_panels):
        raise ValueError(
            f"`{name}` must be one array, or {num_panels} arrays, one per panel. Received: {len(values)} arrays"
        )
    return values * (num_panels if num_panels is not None and len(values) == 1 else 1)


def _check(image, weights, boxes, spread):
    if image.shape[2] != 3 or image.dtype != np.uint8:
        raise ValueError(
            "Images must have shape (height, width, 3) and dtype uint8. Received: "
            f"an image of shape {image.shape} and dtype {image.dtype}"
        )
    num_regions = len(weights)
    if boxes.shape != (num_regions, 4) or (spread is not None and len(spread) != num_regions):
        raise ValueError(
            f"Expected a box (and a spread) for each of {num_regions} weights. Received: boxes.shape={boxes.shape}"
            + ("" if spread is None else f", spread.shape={spread.shape}")
        )
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError(f"Weights must be finite and at least 0. Received: weights={weights}")
    attended = boxes[weights > 0]
    if not ((boxes >= 0) & (boxes <= 1)).all() or not (attended[:, :2] < attended[:, 2:]).all():
        raise ValueError(
            "Boxes must be x0, y0, x1, y1 in [0, 1] with x0 < x1 and y0 < y1, except where the weight is 0. "
            f"Received: boxes={boxes.tolist()}"
        )
