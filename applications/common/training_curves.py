"""Plots losses, KLs and quality metrics over the epochs."""

import numpy as np

from keras_vattn.plots.figure import COLORS, LINES, finish, new_figure
from keras_vattn.plots.text import write


def training_curves(histories, curves, path=None):
    """Plot each loss, KL and quality metric over the epochs, in one panel each.

    A panel has one curve per model, as in figures 4 and 5 of Bahuleyan et al. 2018.

    Args:
        histories: Dictionary from the name of a model to a list of histories, one per seed. A history is the list of
            rows of history.csv. The curve is the mean over the seeds; a band shows one standard deviation.
        curves: Quality metrics to plot: a dictionary that maps columns of history.csv to labels.
        path: PNG file to write. Defaults to `None`, for no file.

    Returns:
        A `matplotlib.figure.Figure`, or `None` if no column can be plotted.
    """
    labels = _labels(histories, curves)
    if not labels:
        return None
    across = min(len(labels), 3)
    down = -(-len(labels) // across)
    figure = new_figure(4.2 * across, 3.0 * down + 0.3 + 0.22 * len(histories), layout="constrained")
    grid = list(figure.subplots(down, across, squeeze=False).flat)
    lines = {}
    for axes, (column, label) in zip(grid, labels.items(), strict=False):
        for index, (name, seeds) in enumerate(histories.items()):
            epochs, mean, deviation = _curve(seeds, column)
            if not epochs:
                continue
            color, style = COLORS[index % len(COLORS)], LINES[index // len(COLORS) % len(LINES)]
            marker = "o" if len(epochs) <= 30 else None
            (line,) = axes.plot(epochs, mean, color=color, linestyle=style, marker=marker, markersize=4)
            title = name if len(seeds) == 1 else f"{name} (mean ± sd, {len(seeds)} seeds)"
            lines.setdefault(title, line)
            if len(seeds) > 1:
                axes.fill_between(epochs, mean - deviation, mean + deviation, color=color, alpha=0.18, linewidth=0)
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.ticklabel_format(axis="y", useOffset=False)
        write(axes.set_title, label, fontsize=11)
        axes.grid(color="0.9", linewidth=0.6)
    for axes in grid[len(labels) :]:
        axes.set_axis_off()
    legend = figure.legend(lines.values(), lines, loc="outside lower left", frameon=False, fontsize=9)
    for text, name in zip(legend.get_texts(), lines, strict=True):
        write(lambda string, text=text, **options: text.update({"text": string, **options}), name)
    return finish(figure, path, 150)


def _labels(histories, curves):
    """Return a dictionary that maps columns of history.csv to labels: losses, KLs and `curves`."""
    rows = [row for seeds in histories.values() for rows in seeds for row in rows]
    columns = {name for row in rows for name in row}
    labels = {"loss": "loss, training (nats)", "val_loss": "loss, validation (nats)"}
    for name in sorted(columns):
        if name.startswith("val_") and name.endswith("_kl"):
            above = " above its floor" if f"{name}_above_floor" in columns else ""
            labels[name] = f"KL of {name[4:-3]}{above}, validation (nats)"
    labels |= curves
    return {name: labels[name] for name in labels if any(value_of(row, name) is not None for row in rows)}


def value_of(row, column):
    """Return a value from a row of history.csv, or `None` if it is missing, NaN or infinite.
    For a KL with a positive minimum (a "floor"), the value is the KL minus the floor."""
    above = row.get(f"{column}_above_floor")
    value = row.get(column) if above is None else above
    return value if value is not None and np.isfinite(value) else None


def _curve(seeds, column):
    """Return the epochs, and the means and standard deviations over seeds."""
    values = {}
    for row in sorted((row for rows in seeds for row in rows), key=lambda row: row["epoch"]):
        if value_of(row, column) is not None:
            values.setdefault(int(row["epoch"]), []).append(value_of(row, column))
    deviation = [np.std(points, ddof=1) if len(points) > 1 else 0.0 for points in values.values()]
    return list(values), np.array([np.mean(points) for points in values.values()]), np.array(deviation)
