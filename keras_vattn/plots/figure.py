"""What every picture is made with: colours, a figure without pyplot, and its file."""

import os
import pathlib

from keras_vattn.plots.text import text_width

# Okabe and Ito's palette: it can be told apart by colour-blind readers and in print.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", ":", "-.")


def legend_columns(width, labels):
    """Columns of a legend that fit into a figure of that many inches."""
    return min(len(labels), max(1, int(width // (0.6 + 0.085 * max(map(text_width, labels))))))


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
        # A full disk is an error of a write, which names no file.
        error.filename = error.filename or str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
    return figure
