"""The picture of training."""

import collections

import numpy as np

from keras_vattn.plots.figure import COLORS, LINES, MARKERS, finish, legend_columns, new_figure
from keras_vattn.plots.text import write


def training_curves(histories, curves, path=None, x="epoch"):
    """Draw the losses, the KLs and measures of quality over the epochs: one panel each, one curve a model.

    Args:
        histories: Dictionary from the name of a model to the histories of its seeds, each a list of rows of
            history.csv. Several seeds are drawn as their mean with a band of one standard deviation.
        curves: Dictionary from a column of quality to its label.
        path: PNG file. Defaults to `None`, for no file.
        x: The column that the curves run over, whole numbers. Defaults to `"epoch"`.

    Returns:
        A `matplotlib.figure.Figure`, `None` where no history has such a column.

    Reference:
        Bahuleyan et al. 2018, "Variational Attention for Sequence-to-Sequence Models", figures 4 and 5.
    """
    labels = labels_of(histories, curves, {"_kl": ""})
    if not labels:
        return None
    across = min(len(labels), 3)
    down = -(-len(labels) // across)
    names = {
        name: name if len(seeds) == 1 else f"{name} (mean ± sd, {len(seeds)} seeds)"
        for name, seeds in histories.items()
    }
    num_columns = legend_columns(4.2 * across, names.values())
    height = 3.0 * down + 0.3 + 0.22 * -(-len(names) // num_columns)
    figure = new_figure(4.2 * across, height, layout="constrained")
    grid = list(figure.subplots(down, across, squeeze=False).flat)
    lines = {}
    for axes, (column, label) in zip(grid, labels.items(), strict=False):
        for index, (name, seeds) in enumerate(histories.items()):
            epochs, mean, deviation = _curve(seeds, column, x)
            if not epochs.size:
                continue
            color, style = COLORS[index % len(COLORS)], LINES[index // len(COLORS) % len(LINES)]
            marker = MARKERS[index % len(MARKERS)] if epochs.size <= 30 else None
            (line,) = axes.plot(epochs, mean, color=color, linestyle=style, marker=marker, markersize=4, linewidth=1.5)
            if len(seeds) > 1:
                axes.fill_between(epochs, mean - deviation, mean + deviation, color=color, alpha=0.18, linewidth=0)
            lines.setdefault(names[name], line)
        axes.set_xlabel(x)
        axes.xaxis.get_major_locator().set_params(integer=True)
        write(axes.set_title, label, fontsize=11)
        axes.grid(color="0.9", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[len(labels) :]:
        axes.set_axis_off()
    lines = {name: lines[name] for name in names.values() if name in lines}
    legend = figure.legend(
        lines.values(), lines, loc="outside lower center", ncols=num_columns, frameon=False, fontsize=9
    )
    for text, name in zip(legend.get_texts(), lines, strict=True):
        write(lambda string, text=text, **options: text.update({"text": string, **options}), name)
    return finish(figure, path, 150)


def labels_of(histories, curves, kinds):
    """Return a dictionary from the columns that are drawn to their labels: losses, KLs, and the program's own.

    Args:
        histories: As of `training_curves`.
        curves: As of `training_curves`.
        kinds: Dictionary from the endings of columns of KLs to what their labels say of them.
    """
    columns = {name for seeds in histories.values() for rows in seeds for row in rows for name in row}
    labels = {"loss": "loss, training (nats)", "val_loss": "loss, validation (nats)"}
    for name in sorted(columns):
        for ending, kind in kinds.items():
            if name.startswith("val_") and name.endswith(ending):
                labels[name] = f"KL of {name[4 : -len(ending)]}{kind}, validation (nats)"
    return {name: label for name, label in {**labels, **curves}.items() if name in columns}


def _curve(seeds, column, x):
    """Return the epochs, or what else is in column `x`, the mean over seeds, and their standard deviation."""
    values = collections.defaultdict(list)
    for rows in seeds:
        for row in rows:
            value = row.get(column)
            if value is not None and np.isfinite(value):
                values[int(row[x])].append(value)
    epochs = sorted(values)
    mean = np.array([np.mean(values[epoch]) for epoch in epochs])
    deviation = np.array([np.std(values[epoch], ddof=1) if len(values[epoch]) > 1 else 0.0 for epoch in epochs])
    return np.array(epochs), mean, deviation
