import numpy as np

from keras_vattn.plots.figure import COLORS, LINES, MARKERS, finish, legend_columns, new_figure, require_matplotlib
from keras_vattn.plots.text import write


def training_curves(histories, metrics, metric_labels=None, title=None, path=None, dpi=150):
    """Draw how metrics change over epochs, for several runs: one panel a metric, one curve a row of the table.

    Args:
        histories: Dictionary from a row's name to its history, or to a list of histories, one a seed. A history is a
            dictionary from a metric's name to one value per epoch, as in `keras.callbacks.History.history`; its
            `"epoch"` list, if it has one, gives the epochs, else they count from 1. `None` and NaN are values that are
            missing.
        metrics: List of the names of the metrics to draw, one panel each. A history may lack one.
        metric_labels: Dictionary from a metric's name to the label of its panel, or `None`. Defaults to `None`.
        title: Title of the figure, or `None`. Defaults to `None`.
        path: File to write as PNG, atomically, or `None`. Defaults to `None`.
        dpi: Dots per inch of the file. Defaults to 150.

    Returns:
        A `matplotlib.figure.Figure`. Several seeds are drawn as their mean with a band of one standard deviation, over
        the seeds that have a value at that epoch.

    Raises:
        ValueError: If nothing is asked for, or a metric is in no history.
        ImportError: If matplotlib is not installed.

    Example:

    >>> runs = [{"BLEU-2": [1.0, 2.0]}, {"BLEU-2": [1.5, 2.5]}]
    >>> figure = training_curves({"VED": runs}, ["BLEU-2"])
    >>> figure.axes[0].get_lines()[0].get_ydata().tolist()
    [1.25, 2.25]

    Reference:
        Bahuleyan et al. 2018, "Variational Attention for Sequence-to-Sequence Models", figures 4 and 5.
    """
    require_matplotlib()
    if not metrics or not histories:
        raise ValueError(f"Expected histories and metrics to draw. Received: {len(histories)} rows, metrics={metrics}")
    rows = {name: [runs] if isinstance(runs, dict) else list(runs) for name, runs in histories.items()}
    known = sorted({metric for runs in rows.values() for run in runs for metric in run} - {"epoch"})
    unknown = [metric for metric in metrics if metric not in known]
    if unknown:
        raise ValueError(f"No history has these metrics; they have {known}. Received: {unknown}")

    across = 2 if len(metrics) == 4 else min(len(metrics), 4 if len(metrics) in (7, 8) else 3)
    down = -(-len(metrics) // across)
    labels = {name: name if len(runs) == 1 else f"{name} (mean ± sd, {len(runs)} seeds)" for name, runs in rows.items()}
    num_columns = legend_columns(4.2 * across, labels.values())
    legend = 0.3 + 0.22 * -(-len(rows) // num_columns)
    figure = new_figure(4.2 * across, 3.0 * down + legend + (0.4 if title else 0.0), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    handles = {}
    for axes, metric in zip(grid.flat, metrics, strict=False):
        for index, (name, runs) in enumerate(rows.items()):
            epochs, mean, deviation = _curve(runs, metric)
            if not epochs.size:
                continue
            color, style = COLORS[index % len(COLORS)], LINES[index // len(COLORS) % len(LINES)]
            marker = MARKERS[index % len(MARKERS)] if epochs.size <= 30 else None
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
        loc="outside lower center", ncols=num_columns, frameon=False, fontsize=9,
    )  # fmt: skip
    for text, (_, label) in zip(legend.get_texts(), shown, strict=True):
        write(lambda string, text=text, **options: text.update({"text": string, **options}), label)
    if title:
        write(figure.suptitle, title, fontsize=12)
    return finish(figure, path, dpi)


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
