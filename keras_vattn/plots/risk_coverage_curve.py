import numpy as np

from keras_vattn.metrics.uncertainty import selective_risks
from keras_vattn.plots.figure import draw_curves, draws_by_model, require_matplotlib


def risk_coverage_curve(draws, labels, uncertainty=None, title=None, path=None, dpi=150):
    """Plot risk (the error rate of the most certain examples) against coverage (their fraction).

    At coverage 1, the risk is the error rate of the model. The legend shows the area under the curve,
    `keras_vattn.metrics.risk_coverage_area`.

    Args:
        draws: Probabilities (num_samples, N, C). Pass a single prediction p as p[None]. To plot one curve per model,
            pass a dictionary that maps model names to arrays.
        labels: Integers (N,).
        uncertainty: Function that maps the probabilities of a model to an array (N,), larger for less certain examples,
            such as `keras_vattn.metrics.mutual_information`. Defaults to minus the largest mean probability.
        title: Title of the figure, or `None`. Defaults to `None`.
        path: Path of a PNG file to write (atomically), or `None`. Defaults to `None`.
        dpi: Dots per inch of the file. Defaults to 150.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If the draws are not probabilities, a label is not in [0, C), or the uncertainty has the wrong
            length or contains NaN.
        ImportError: If matplotlib is not installed.

    Reference:
        Geifman et al. 2019, https://arxiv.org/abs/1805.08206.

    Example:

    >>> draws = [[[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]]
    >>> figure = keras_vattn.plots.risk_coverage_curve({"mean": draws}, [0, 0, 0])
    >>> figure.axes[0].get_legend().get_texts()[0].get_text()  # (0 + 0 + 1/3) / 3
    'mean, area 0.111'
    """
    require_matplotlib()
    curves = {}
    for name, model_draws in draws_by_model(draws).items():
        risks = selective_risks(model_draws, labels, uncertainty and uncertainty(model_draws))
        coverage = np.arange(1, len(risks) + 1) / len(risks)
        curves[f"{name}, area {np.mean(risks):.3f}".removeprefix(", ")] = coverage, risks, {}
    return draw_curves(curves, False, "coverage", "risk", title, path, dpi)
