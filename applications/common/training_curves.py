"""The picture of training."""

import collections

import numpy as np

from keras_vattn.plots.figure import COLORS, LINES, MARKERS, finish, new_figure
from keras_vattn.plots.text import text_width, write


def training_curves(histories, curves, path=None, x="epoch"):
    """Draw the losses, the KLs and measures of quality over the epochs: one panel each, one curve a model. Text
    replaces a panel of constant curves.

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
    labels, constants = panels_of(histories, curves)
    if not labels and not constants:
        return None
    across = max(1, min(len(labels), 3))
    down = max(1, -(-len(labels) // across))
    names = {
        name: name if len(seeds) == 1 else f"{name} (mean ± sd, {len(seeds)} seeds)"
        for name, seeds in histories.items()
    }
    label_width = 0.6 + 0.085 * max(map(text_width, names.values()))  # inches
    num_columns = min(len(names), max(1, int(4.2 * across // label_width)))
    height = 3.0 * down + 0.3 + 0.22 * (len(constants) - (-len(names) // num_columns))
    figure = new_figure(4.2 * across, height, layout="constrained")
    if constants:
        write(figure.suptitle, "\n".join(constants), fontsize=9)
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


def panels_of(histories, curves):
    """Return the panels of losses, KLs and the program's own measures, and a line of text for each constant one.

    Args:
        histories, curves: As of `training_curves`.

    Returns:
        A dictionary from columns to their labels; and a list of lines for the columns whose values are equal to three
        digits in every model, which the dictionary leaves out.
    """
    columns = {name for seeds in histories.values() for rows in seeds for row in rows for name in row}
    labels = {"loss": "loss, training (nats)", "val_loss": "loss, validation (nats)"}
    for name in sorted(columns):
        if name.startswith("val_") and name.endswith("_kl"):
            above = " above its floor" if f"{name}_above_floor" in columns else ""
            labels[name] = f"KL of {name[4:-3]}{above}, validation (nats)"
    panels, constants = {}, []
    for name, label in {**labels, **curves}.items():
        values = {}
        for model, seeds in histories.items():
            column = [value_of(row, name) for rows in seeds for row in rows]
            values[model] = np.array([value for value in column if value is not None])
        values = {model: column for model, column in values.items() if column.size}
        if any(np.ptp(x) > 1e-3 * max(np.abs(x).max(), 0.5) for x in values.values()):
            panels[name] = label
        elif values:
            means = {model: f"{round(x.mean(), 3):.3g}" for model, x in values.items()}
            means = [f"{mean} ({model})" if len(histories) > 1 else mean for model, mean in means.items()]
            constants.append(f"{label}: {', '.join(means)} throughout")
    return panels, constants


def value_of(row, column):
    """Return the value in a column of a row of history.csv, for a KL with a floor the part above it; `None` where it is
    missing or not finite."""
    above = row.get(f"{column}_above_floor")
    value = row.get(column) if above is None else above
    return value if value is not None and np.isfinite(value) else None


def _curve(seeds, column, x):
    """Return the epochs, or what else is in column `x`, the mean over seeds, and their standard deviation."""
    values = collections.defaultdict(list)
    for rows in seeds:
        for row in rows:
            value = value_of(row, column)
            if value is not None:
                values[int(row[x])].append(value)
    epochs = sorted(values)
    mean = np.array([np.mean(values[epoch]) for epoch in epochs])
    deviation = np.array([np.std(values[epoch], ddof=1) if len(values[epoch]) > 1 else 0.0 for epoch in epochs])
    return np.array(epochs), mean, deviation
