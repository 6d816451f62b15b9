"""Pictures of alignments and of training: matplotlib figures made without pyplot, so no state is left behind."""

import os
import pathlib

import numpy as np

from keras_vattn._plot_text import label_axis, readable, text_width, write
from keras_vattn.validation import positive_integer

# Okabe and Ito's palette: it can be told apart by colour-blind readers and in print.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LINES = ("-", "--", ":", "-.")


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
):
    """Draws attention weights: one row per target token, one column per source token.

    Every panel shares one grey scale from 0 (white) to 1 (black), so panels compare.

    Args:
        weights: (T, S) array in [0, 1], or a sequence of P of them for P panels, for instance the rows of a table or
            several draws.
        source_tokens: list of S str; for several panels with different sentences, a list of P such lists.
        target_tokens: list of T str; likewise.
        panel_titles: list of P str, or None.
        title: str or None. Title of the figure.
        spread: standard deviations of the weights over draws, of the shape of `weights`, or None. Drawn as an orange
            circle whose area is proportional to it; one that fills its cell is 0.5.
        panels_per_row: int or None. Panels beside each other, however wide that is; None for as many as fit a page.
        path: file to write as PNG, atomically, or None.
        dpi: int. Dots per inch of the file. Defaults to 150.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        ValueError: if the shapes do not fit.
        ImportError: if matplotlib is not installed.

    Example:

    >>> import numpy as np
    >>> figure = keras_vattn.plots.alignment_heat_map(np.eye(2), ["guten", "Tag"], ["good", "day"])
    >>> len(figure.axes[0].get_xticklabels())
    2

    Reference:
        Bahdanau et al. 2015, figure 3, for this picture.
    """
    _require_matplotlib()
    panels = _panels("weights", weights)
    spreads = [None] * len(panels) if spread is None else _panels("spread", spread)
    sources, targets = _token_lists(source_tokens, len(panels)), _token_lists(target_tokens, len(panels))
    panel_titles = [None] * len(panels) if panel_titles is None else list(panel_titles)
    counts = {len(panels), len(sources), len(targets), len(panel_titles), len(spreads)}
    if len(counts) > 1:
        raise ValueError(
            "Expected one source, target, title and spread for each panel of weights. Received: "
            f"{len(panels)} panels of weights, {len(sources)} sources, {len(targets)} targets, "
            f"{len(panel_titles)} titles, {len(spreads)} spreads"
        )
    for panel, deviation, source, target in zip(panels, spreads, sources, targets, strict=True):
        if panel.shape != (len(target), len(source)) or (deviation is not None and deviation.shape != panel.shape):
            raise ValueError(
                "Expected weights (and spread) of shape (target tokens, source tokens) = "
                f"({len(target)}, {len(source)}). Received: weights.shape={panel.shape}"
                + ("" if deviation is None else f", spread.shape={deviation.shape}")
            )

    positive_integer("panels_per_row", panels_per_row, optional=True)
    texts = [[readable(token) for token in tokens] for tokens in sources + targets]
    sources, targets = texts[: len(panels)], texts[len(panels) :]
    columns, rows = max(map(len, sources)), max(map(len, targets))
    cell = min(max(30.0 / max(columns, rows, 1), 0.14), 0.32)  # inches
    character = 0.075 if cell > 0.2 else 0.058
    left = 0.25 + character * max((text_width(token) for tokens in targets for token in tokens), default=0)
    top = 0.15 + character * max((text_width(token) for tokens in sources for token in tokens), default=0)
    above = top + (0.3 if any(panel_titles) else 0.05)
    panel_width = max(cell * columns, 1.0, 0.09 * max((text_width(text) for text in panel_titles if text), default=0))
    panel_height = max(cell * rows, 0.7)
    across = min(len(panels), panels_per_row or max(1, int(16.0 // (left + panel_width))))
    down = -(-len(panels) // across)
    bar, head = 0.9, 0.35 if title else 0.0
    width = max(across * (left + panel_width) + bar, 0.3 + 0.1 * text_width(title or ""))
    height = down * (above + panel_height) + head + 0.15

    figure = _figure(width, height)
    image = None
    for index, (panel, deviation) in enumerate(zip(panels, spreads, strict=True)):
        row, column = divmod(index, across)
        x = column * (left + panel_width) + left
        y = height - head - (row + 1) * (above + panel_height)
        axes = figure.add_axes((x / width, y / height, panel_width / width, panel_height / height))
        image = axes.imshow(panel, cmap="Greys", vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
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
                axes.text, 0.5, 1.0 + top / panel_height, panel_titles[index],
                transform=axes.transAxes, ha="center", va="bottom", fontsize=10,
            )  # fmt: skip
    bar_height = min(panel_height, 3.0)
    bar_axes = figure.add_axes(
        (
            (across * (left + panel_width) + 0.2) / width,
            (height - head - above - bar_height) / height,
            0.15 / width,
            bar_height / height,
        )
    )
    figure.colorbar(image, cax=bar_axes, label="weight", ticks=[0.0, 0.5, 1.0])
    if title:
        write(figure.text, 0.1 / width, 1.0 - 0.1 / height, title, ha="left", va="top", fontsize=12)
    return _finish(figure, path, dpi)


def training_curves(histories, metrics, metric_labels=None, title=None, path=None, dpi=150):
    """Draws how metrics change over epochs, for several runs: one panel a metric, one curve a row of the table.

    Args:
        histories: dict from a row's name to its history, or to a list of histories, one a seed. A history is a dict
            from a metric's name to one value per epoch, as in `keras.callbacks.History.history`; its "epoch" list, if
            it has one, gives the epochs, else they count from 1. None and NaN are values that are missing.
        metrics: list of str. Metrics to draw, one panel each. A history may lack one.
        metric_labels: dict from a metric's name to the label of its panel, or None.
        title: str or None. Title of the figure.
        path: file to write as PNG, atomically, or None.
        dpi: int. Dots per inch of the file. Defaults to 150.

    Returns:
        `matplotlib.figure.Figure`. Several seeds are drawn as their mean with a band of one standard deviation, over
        the seeds that have a value at that epoch.

    Raises:
        ValueError: if nothing is asked for, or a metric is in no history.
        ImportError: if matplotlib is not installed.

    Example:

    >>> runs = [{"BLEU-2": [1.0, 2.0]}, {"BLEU-2": [1.5, 2.5]}]
    >>> figure = keras_vattn.plots.training_curves({"VED": runs}, ["BLEU-2"])
    >>> figure.axes[0].get_lines()[0].get_ydata().tolist()
    [1.25, 2.25]

    Reference:
        Bahuleyan et al. 2018, "Variational Attention for Sequence-to-Sequence Models", figures 4 and 5.
    """
    _require_matplotlib()
    if not metrics or not histories:
        raise ValueError(f"Expected histories and metrics to draw. Received: {len(histories)} rows, metrics={metrics}")
    rows = {name: [runs] if isinstance(runs, dict) else list(runs) for name, runs in histories.items()}
    known = sorted({metric for runs in rows.values() for run in runs for metric in run} - {"epoch"})
    unknown = [metric for metric in metrics if metric not in known]
    if unknown:
        raise ValueError(f"No history has these metrics; they have {known}. Received: {unknown}")

    across = min(len(metrics), 4 if len(metrics) in (4, 7, 8) else 3)
    if len(metrics) == 4:
        across = 2
    down = -(-len(metrics) // across)
    labels = {name: name if len(runs) == 1 else f"{name} (mean ± sd, {len(runs)} seeds)" for name, runs in rows.items()}
    legend_columns = _legend_columns(4.2 * across, labels.values())
    legend = 0.3 + 0.22 * -(-len(rows) // legend_columns)
    figure = _figure(4.2 * across, 3.0 * down + legend + (0.4 if title else 0.0), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    handles = {}
    for axes, metric in zip(grid.flat, metrics, strict=False):
        for index, (name, runs) in enumerate(rows.items()):
            epochs, mean, deviation = _curve(runs, metric)
            if not epochs.size:
                continue
            color, style = _COLORS[index % len(_COLORS)], _LINES[index // len(_COLORS) % len(_LINES)]
            marker = _MARKERS[index % len(_MARKERS)] if epochs.size <= 30 else None
            (line,) = axes.plot(epochs, mean, color=color, linestyle=style, marker=marker, markersize=4, linewidth=1.5)
            if deviation is not None:
                axes.fill_between(epochs, mean - deviation, mean + deviation, color=color, alpha=0.18, linewidth=0)
            handles.setdefault(index, (line, labels[name]))
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        write(axes.set_title, (metric_labels or {}).get(metric, metric), fontsize=11)
        axes.grid(color="0.9", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in list(grid.flat)[len(metrics) :]:
        axes.set_axis_off()
    shown = [handles[index] for index in sorted(handles)]
    legend = figure.legend(
        [line for line, _ in shown], [label for _, label in shown],
        loc="outside lower center", ncols=legend_columns, frameon=False, fontsize=9,
    )  # fmt: skip
    for text, (_, label) in zip(legend.get_texts(), shown, strict=True):
        write(lambda string, text=text, **options: text.update({"text": string, **options}), label)
    if title:
        write(figure.suptitle, title, fontsize=12)
    return _finish(figure, path, dpi)


def quality_diversity(points, quality_label="quality", diversity_label="diversity", title=None, path=None, dpi=150):
    """Draws quality against diversity, one series a method and one labelled point a setting.

    Args:
        points: dict from a method's name to its list of (diversity, quality, label); the label, a str or None, names
            the setting, such as a temperature or a KL weight. Points are joined in the order given.
        quality_label: str. Label of the vertical axis, for instance "BLEU-4".
        diversity_label: str. Label of the horizontal axis, for instance "Dist-2".
        title: str or None. Title of the figure.
        path: file to write as PNG, atomically, or None.
        dpi: int. Dots per inch of the file. Defaults to 150.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        ValueError: if there is no point.
        ImportError: if matplotlib is not installed.

    Example:

    >>> figure = keras_vattn.plots.quality_diversity({"VED": [(0.2, 3.1, "γ=0.1"), (0.4, 2.8, "γ=0.5")]})
    >>> figure.axes[0].get_xlabel()
    'diversity'
    """
    _require_matplotlib()
    if not any(points.values()):
        raise ValueError(f"Expected at least one point. Received: points={points!r}")
    legend_columns = _legend_columns(6.4, points)
    figure = _figure(6.4, 4.3 + 0.3 + 0.22 * -(-len(points) // legend_columns), layout="constrained")
    axes = figure.subplots()
    for index, series in enumerate(points.values()):
        color, marker = _COLORS[index % len(_COLORS)], _MARKERS[index % len(_MARKERS)]
        diversity, quality = [point[0] for point in series], [point[1] for point in series]
        axes.plot(
            diversity, quality, color=color, marker=marker, markersize=6, linewidth=1.0,
            linestyle=_LINES[index // len(_COLORS) % len(_LINES)], alpha=0.9, label=str(index),
        )  # fmt: skip
        for x, y, label in series:
            if label:
                write(
                    axes.annotate, label, xy=(x, y), xytext=(5, 5), textcoords="offset points", fontsize=8, color=color
                )
    axes.margins(0.12)
    write(axes.set_xlabel, diversity_label)
    write(axes.set_ylabel, quality_label)
    axes.grid(color="0.9", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    # Below the axes: inside them it would hide points.
    legend = figure.legend(loc="outside lower center", ncols=legend_columns, frameon=False, fontsize=9)
    for text, name in zip(legend.get_texts(), points, strict=True):
        write(lambda string, text=text, **options: text.update({"text": string, **options}), name)
    if title:
        write(axes.set_title, title, fontsize=12)
    return _finish(figure, path, dpi)


def _legend_columns(width, labels):
    """Columns of a legend that fit into a figure of that many inches."""
    return min(len(labels), max(1, int(width // (0.6 + 0.085 * max(map(text_width, labels))))))


def _require_matplotlib():
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError('Plots need matplotlib: pip install "keras_vattn[apps]"') from error


def _figure(width, height, **options):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), **options)
    FigureCanvasAgg(figure)
    return figure


def _finish(figure, path, dpi):
    if path is None:
        return figure
    path = pathlib.Path(path)
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    try:
        figure.savefig(temporary, dpi=dpi, format="png", facecolor="white")
        os.replace(temporary, path)
    except OSError as error:
        # A full disk is an error of a write, which names no file.
        error.filename = error.filename or str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
    return figure


def _panels(name, arrays):
    if hasattr(arrays, "ndim") or hasattr(arrays, "shape"):
        arrays = np.asarray(arrays, "float64")
        arrays = [arrays] if arrays.ndim == 2 else list(arrays)
    elif arrays and np.ndim(arrays[0]) < 2:
        arrays = [arrays]
    panels = [np.asarray(panel, "float64") for panel in arrays]
    if not panels or any(panel.ndim != 2 or panel.size == 0 for panel in panels):
        raise ValueError(
            f"`{name}` must be (target, source), neither empty, or several such panels. "
            f"Received: {name} of shapes {[panel.shape for panel in panels]}"
        )
    return panels


def _token_lists(tokens, num_panels):
    tokens = list(tokens)
    if tokens and not isinstance(tokens[0], str):
        return [list(panel) for panel in tokens]
    return [tokens] * num_panels


def _curve(runs, metric):
    """Epochs, mean over runs, and standard deviation (None for a single run)."""
    values = {}
    for run in runs:
        series = run.get(metric, [])
        epochs = run.get("epoch") or range(1, len(series) + 1)
        for epoch, value in zip(epochs, series, strict=False):
            if value is not None and np.isfinite(value):
                values.setdefault(int(epoch), []).append(float(value))
    epochs = np.array(sorted(values), "int64")
    mean = np.array([np.mean(values[epoch]) for epoch in epochs])
    if len(runs) == 1:
        return epochs, mean, None
    deviation = [np.std(values[epoch], ddof=1) if len(values[epoch]) > 1 else 0.0 for epoch in epochs]
    return epochs, mean, np.array(deviation)
