from keras_vattn.metrics.uncertainty import confidence_bins, expected_calibration_error
from keras_vattn.plots.figure import MARKERS, draw_curves, draws_by_model, finish, require_matplotlib


def reliability_diagram(draws, labels, num_bins=15, title=None, path=None, dpi=150):
    """Plot the accuracy of predictions against the confidence, the largest mean probability.

    Each point shows the mean confidence and the accuracy of a bin. The area of the marker is proportional to the number
    of examples in the bin. Points below the diagonal show that the model is overconfident. Bins with few examples may
    be far from the diagonal by chance. The legend shows `keras_vattn.metrics.expected_calibration_error`.

    Args:
        draws: Probabilities (num_samples, N, C). Pass a single prediction p as p[None]. To plot one curve per model,
            pass a dictionary that maps model names to arrays.
        labels: Integers (N,).
        num_bins: Number of bins of equal width. Defaults to 15.
        title: Title of the figure, or `None`. Defaults to `None`.
        path: Path of a PNG file to write (atomically), or `None`. Defaults to `None`.
        dpi: Dots per inch of the file. Defaults to 150.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If the draws are not probabilities, a label is not in [0, C) or `num_bins` is not positive.
        ImportError: If matplotlib is not installed.

    Reference:
        Guo et al. 2017, https://arxiv.org/abs/1706.04599, figure 1.

    Example:

    >>> draws = [[[0.75, 0.25], [0.75, 0.25], [0.75, 0.25], [0.25, 0.75]]]
    >>> figure = keras_vattn.plots.reliability_diagram(draws, [0, 0, 1, 0])
    >>> figure.axes[0].get_legend().get_texts()[0].get_text()
    'ECE 0.250'
    """
    require_matplotlib()
    curves, shares = {}, []
    for number, (name, model_draws) in enumerate(draws_by_model(draws).items()):
        counts, confidence, accuracy = confidence_bins(model_draws, labels, num_bins)
        error = expected_calibration_error(model_draws, labels, num_bins)
        options = {"marker": MARKERS[number % len(MARKERS)], "markersize": 3.0, "alpha": 0.7}
        points = confidence[counts > 0], accuracy[counts > 0], options
        curves[f"{name}, ECE {error:.3f}".removeprefix(", ")] = points
        shares.append(counts[counts > 0] / counts.sum())
    figure = draw_curves(curves, True, "confidence", "accuracy", title, None, dpi)
    axes = figure.axes[0]
    # `axes.lines[0]` is the diagonal.
    for line, share in zip(axes.lines[1:], shares, strict=True):
        axes.scatter(*line.get_data(), 400.0 * share, color=line.get_color(), marker=line.get_marker(), alpha=0.3)
    return finish(figure, path, dpi)
