"""Create matplotlib figures without pyplot, plot curves in them, and write them to files."""

import os
import pathlib

from keras_vattn.plots.text import readable, write

# The palette of Okabe and Ito, which colour-blind readers can distinguish.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", ":", "-.")


def require_matplotlib():
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError('Plots need matplotlib: pip install "keras_vattn[plots]"') from error


def new_figure(width, height, **options):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), **options)
    FigureCanvasAgg(figure)
    return figure


def finish(figure, path, dpi):
    if path is None:
        return figure
    path = pathlib.Path(path)
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    try:
        figure.savefig(temporary, dpi=dpi, format="png", facecolor="white")
        os.replace(temporary, path)
    except OSError as error:
        # The error for a full disk lacks the file name.
        error.filename = error.filename or str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
    return figure


def draw_curves(curves, diagonal, x, y, title, path, dpi):
    """Return a figure with labelled curves over x values in [0, 1].

    Args:
        curves: Dictionary that maps legend labels to tuples of x values, y values and line options.
        diagonal: Whether to plot the line from (0, 0) to (1, 1).
        x, y: Labels of the axes.
    """
    figure = new_figure(4.6, 4.2, layout="constrained")
    axes = figure.subplots()
    if diagonal:
        axes.plot([0.0, 1.0], [0.0, 1.0], color="0.7", linewidth=1.0)
    for number, (label, (xs, ys, options)) in enumerate(curves.items()):
        style = {"color": COLORS[number % len(COLORS)], "linestyle": LINES[number // len(COLORS) % len(LINES)]}
        axes.plot(xs, ys, **style, **options, label=readable(label, longest=None, spaces=False))
    axes.set(xlabel=x, ylabel=y, xlim=(0.0, 1.0))
    axes.grid(color="0.9", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    for text in axes.legend(frameon=False, fontsize=8).get_texts():
        text.set_parse_math(False)
    if title:
        write(axes.set_title, title, fontsize=11)
    return finish(figure, path, dpi)


def draws_by_model(draws):
    """Return a dictionary that maps model names to sampled probabilities. A single model is named `""`."""
    return draws if isinstance(draws, dict) else {"": draws}
