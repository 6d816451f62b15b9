from keras_vattn.plots.figure import COLORS, LINES, MARKERS, finish, legend_columns, new_figure, require_matplotlib
from keras_vattn.plots.text import write


def quality_diversity(points, quality_label="quality", diversity_label="diversity", title=None, path=None, dpi=150):
    """Draw quality against diversity, one series a method and one labelled point a setting.

    Args:
        points: Dictionary from a method's name to its list of (diversity, quality, label); the label, a string or
            `None`, names the setting, such as a temperature or a KL weight. Points are joined in the order given.
        quality_label: Label of the vertical axis, for instance `"BLEU-4"`. Defaults to `"quality"`.
        diversity_label: Label of the horizontal axis, for instance `"Dist-2"`. Defaults to `"diversity"`.
        title: Title of the figure, or `None`. Defaults to `None`.
        path: File to write as PNG, atomically, or `None`. Defaults to `None`.
        dpi: Dots per inch of the file. Defaults to 150.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If there is no point.
        ImportError: If matplotlib is not installed.

    Example:

    >>> figure = quality_diversity({"VED": [(0.2, 3.1, "γ=0.1"), (0.4, 2.8, "γ=0.5")]})
    >>> figure.axes[0].get_xlabel()
    'diversity'
    """
    require_matplotlib()
    if not any(points.values()):
        raise ValueError(f"Expected at least one point. Received: points={points!r}")
    num_columns = legend_columns(6.4, points)
    figure = new_figure(6.4, 4.3 + 0.3 + 0.22 * -(-len(points) // num_columns), layout="constrained")
    axes = figure.subplots()
    for index, series in enumerate(points.values()):
        color, marker = COLORS[index % len(COLORS)], MARKERS[index % len(MARKERS)]
        diversity, quality = [point[0] for point in series], [point[1] for point in series]
        axes.plot(
            diversity, quality, color=color, marker=marker, markersize=6, linewidth=1.0,
            linestyle=LINES[index // len(COLORS) % len(LINES)], alpha=0.9, label=str(index),
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
    legend = figure.legend(loc="outside lower center", ncols=num_columns, frameon=False, fontsize=9)
    for text, name in zip(legend.get_texts(), points, strict=True):
        write(lambda string, text=text, **options: text.update({"text": string, **options}), name)
    if title:
        write(axes.set_title, title, fontsize=12)
    return finish(figure, path, dpi)
