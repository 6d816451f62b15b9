import numpy as np

from keras_vattn.plots.figure import finish, new_figure, require_matplotlib
from keras_vattn.plots.text import label_axis, readable, text_width, write
from keras_vattn.support.validation import positive_integer


def alignment_heat_map(
    weights,
    source_tokens,
    target_tokens,
    panel_titles=None,
    title=None,
    spread=None,
    panels_per_row=None,
    path=None,
    dpi=150,
    other=None,
):
    """Plot attention weights as a table of grey cells: one row per target token, one column per source token.

    All panels share one grey scale from 0 (white) to 1 (black). With `other`, a cell is grey if both weights are equal,
    red if `weights` is larger, and blue if `other` is larger.

    Args:
        weights: (T, S) array in [0, 1], or a sequence of P arrays for P panels.
        source_tokens: List of S strings, or a list of P lists for panels with different sentences.
        target_tokens: List of T strings, or a list of P lists.
        panel_titles: List of P strings, or `None`. Defaults to `None`.
        title: Title of the figure, or `None`. Defaults to `None`.
        spread: Standard deviations of the weights over samples, with the shape of `weights`, or `None`. The area of an
            orange circle shows the deviation. At 0.5, the circle fills the cell. In a sequence, `None` stands for a
            panel without circles. Defaults to `None`.
        panels_per_row: Number of panels in a row, or `None` for rows that fit on a page. Defaults to `None`.
        path: Path of a PNG file to write (atomically), or `None`. Defaults to `None`.
        dpi: Dots per inch of the file. Defaults to 150.
        other: A second array of weights, such as the weights of the posterior, with the shape of `weights`, or `None`.
            In a sequence, `None` stands for a panel without a second array. Defaults to `None`.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If the shapes do not match.
        ImportError: If matplotlib is not installed.

    Example:

    >>> import numpy as np
    >>> texts = ["guten", "Tag"], ["good", "day"]
    >>> figure = keras_vattn.plots.alignment_heat_map(np.eye(2), *texts)
    >>> len(figure.axes[0].get_xticklabels())
    2
    >>> prior, posterior = np.eye(2), np.array([[0.0, 1.0], [0.0, 1.0]])
    >>> figure = keras_vattn.plots.alignment_heat_map(prior, *texts, other=posterior)
    >>> figure.axes[0].get_images()[0].get_array()[0].tolist()  # red, blue
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]

    Reference:
        Bahdanau et al. 2015, figure 3; Deng et al. 2018, figures 3 and 4, for two distributions in one panel.
    """
    require_matplotlib()
    panels = _panels("weights", weights)
    spreads, overlays = (_optional_panels(*pair, len(panels)) for pair in (("spread", spread), ("other", other)))
    sources, targets = _token_lists(source_tokens, len(panels)), _token_lists(target_tokens, len(panels))
    panel_titles = [None] * len(panels) if panel_titles is None else list(panel_titles)
    counts = {len(panels), len(sources), len(targets), len(panel_titles), len(spreads), len(overlays)}
    if len(counts) > 1:
        raise ValueError(
            "All arguments must contain the same number of panels. Received: "
            f"{len(panels)} panels of weights, {len(sources)} sources, {len(targets)} targets, "
            f"{len(panel_titles)} titles, {len(spreads)} spreads, {len(overlays)} arrays `other`"
        )
    for *arrays, source, target in zip(panels, spreads, overlays, sources, targets, strict=True):
        shapes = {
            name: array.shape
            for name, array in zip(("weights", "spread", "other"), arrays, strict=True)
            if array is not None
        }
        if set(shapes.values()) != {(len(target), len(source))}:
            raise ValueError(
                "All arrays of a panel must have the shape (target tokens, source tokens) = "
                f"({len(target)}, {len(source)}). Received: "
                + ", ".join(f"{name}.shape={shape}" for name, shape in shapes.items())
            )

    positive_integer("panels_per_row", panels_per_row, optional=True)
    texts = [[readable(token) for token in tokens] for tokens in sources + targets]
    sources, targets = texts[: len(panels)], texts[len(panels) :]
    columns, rows = max(map(len, sources)), max(map(len, targets))
    cell = min(max(30.0 / max(columns, rows, 1), 0.14), 0.32)  # inches
    character = 0.075 if cell > 0.2 else 0.058
    left_margin = 0.25 + character * max((text_width(token) for tokens in targets for token in tokens), default=0)
    token_height = 0.15 + character * max((text_width(token) for tokens in sources for token in tokens), default=0)
    header_height = token_height + (0.3 if any(panel_titles) else 0.05)
    panel_width = max(cell * columns, 1.0, 0.09 * max((text_width(text) for text in panel_titles if text), default=0))
    panel_height = max(cell * rows, 0.7)
    across = min(len(panels), panels_per_row or max(1, int(16.0 // (left_margin + panel_width))))
    down = -(-len(panels) // across)
    bar, title_height = 0.9, 0.35 if title else 0.0
    width = max(across * (left_margin + panel_width) + bar, 0.3 + 0.1 * text_width(title or ""))
    height = down * (header_height + panel_height) + title_height + 0.15

    figure = new_figure(width, height)
    image = None
    for index, (panel, deviation, overlay) in enumerate(zip(panels, spreads, overlays, strict=True)):
        row, column = divmod(index, across)
        x = column * (left_margin + panel_width) + left_margin
        y = height - title_height - (row + 1) * (header_height + panel_height)
        axes = figure.add_axes((x / width, y / height, panel_width / width, panel_height / height))
        image = axes.imshow(
            panel if overlay is None else _overlay_colors(panel, overlay),
            cmap="Greys",
            vmin=0.0,
            vmax=1.0,
            aspect="auto",
            interpolation="nearest",
        )
        if deviation is not None:
            target_index, source_index = np.nonzero(deviation > 1e-3)
            largest = (72.0 * min(panel_width / columns, panel_height / rows)) ** 2  # points squared
            areas = largest * np.clip(deviation[target_index, source_index] / 0.5, 0.0, 1.0)
            axes.scatter(source_index, target_index, s=areas, facecolors="none", edgecolors="#D55E00", linewidths=1.2)
        axes.xaxis.tick_top()
        axes.tick_params(length=0, pad=3)
        size = 9 if cell > 0.2 else 7
        label_axis(axes.xaxis, sources[index], size, rotation=90)
        label_axis(axes.yaxis, targets[index], size)
        axes.set_xticks(np.arange(-0.5, len(sources[index])), minor=True)
        axes.set_yticks(np.arange(-0.5, len(targets[index])), minor=True)
        axes.grid(which="minor", color="0.88", linewidth=0.5)
        axes.tick_params(which="minor", length=0)
        if panel_titles[index]:
            write(
                axes.text, 0.5, 1.0 + token_height / panel_height, panel_titles[index],
                transform=axes.transAxes, ha="center", va="bottom", fontsize=10,
            )  # fmt: skip
    bar_height = min(panel_height, 3.0)
    bar_axes = figure.add_axes(
        (
            (across * (left_margin + panel_width) + 0.2) / width,
            (height - title_height - header_height - bar_height) / height,
            0.15 / width,
            bar_height / height,
        )
    )
    figure.colorbar(image, cax=bar_axes, label="weight", ticks=[0.0, 0.5, 1.0])
    if title:
        write(figure.text, 0.1 / width, 1.0 - 0.1 / height, title, ha="left", va="top", fontsize=12)
    return finish(figure, path, dpi)


def _overlay_colors(weights, other):
    """Return colours (T, S, 3)."""
    return np.clip(1.0 - np.stack([other, np.maximum(weights, other), weights], axis=-1), 0.0, 1.0)


def _optional_panels(name, arrays, count):
    """Return a list with an array or `None` for each panel."""
    if arrays is None:
        return [None] * count
    if isinstance(arrays, (list, tuple)) and any(array is None for array in arrays):
        return [None if array is None else _panels(name, [array])[0] for array in arrays]
    return _panels(name, arrays)


def _panels(name, arrays):
    if hasattr(arrays, "ndim") or hasattr(arrays, "shape"):
        arrays = np.asarray(arrays, "float64")
        arrays = [arrays] if arrays.ndim == 2 else list(arrays)
    elif arrays and np.ndim(arrays[0]) < 2:
        arrays = [arrays]
    panels = [np.asarray(panel, "float64") for panel in arrays]
    if not panels or any(panel.ndim != 2 or panel.size == 0 for panel in panels):
        raise ValueError(
            f"`{name}` must be a non-empty (target, source) array, or several such arrays. "
            f"Received: {name} of shapes {[panel.shape for panel in panels]}"
        )
    return panels


def _token_lists(tokens, num_panels):
    tokens = list(tokens)
    if tokens and not isinstance(tokens[0], str):
        return [list(panel) for panel in tokens]
    return [tokens] * num_panels
