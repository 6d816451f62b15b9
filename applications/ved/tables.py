"""Figures of a run, and the tables of a comparison: the paper's layouts, quality against diversity."""

import numpy as np

from applications.common.tables import Column, table, titled
from applications.ved.options import MODELS
from keras_vattn.plots.figure import COLORS, LINES, MARKERS, finish, new_figure

# Different sources on which the curves of a comparison are decoded.
CURVE_SOURCES = 300
FIGURES = {
    **{f"bleu_{order}": f"BLEU-{order}" for order in range(1, 5)},
    "entropy": "entropy (nats)",
    "dist_1": "Dist-1",
    "dist_2": "Dist-2",
}


def _digits(name):
    return 2 if name.startswith("bleu") else 3


COLUMNS = (
    Column("BLEU-4, MAP", "report.map.bleu_4", 2),
    *(
        Column(f"{title.removesuffix(' (nats)')}, draws", f"report.sampling.{name}", _digits(name))
        for name, title in FIGURES.items()
    ),
    Column("PPL (plug-in)", "report.likelihood.perplexity", logarithm=True),
    Column("PPL (ELBO)", "report.likelihood.elbo_perplexity", logarithm=True),
    Column("KL of z (nats)", "report.likelihood.kl.latent_kl"),
    Column("KL of attention (nats)", "report.likelihood.kl.attention_kl"),
    Column("active units of z", "report.likelihood.active_units", 0),
)


def table_2(comparison):
    """Return Table 2 of Bahuleyan et al. 2018."""
    return _paper_table(comparison, tuple(FIGURES))


def table_4(comparison):
    """Return Table 4 of Bahuleyan et al. 2018."""
    return _paper_table(comparison, ("bleu_2", "entropy", "dist_1", "dist_2"))


def _paper_table(comparison, names):
    """Return a table with a line for each model and inference."""
    lines = []
    for model, records in comparison.records.items():
        for inference in ("map", "sampling"):
            if all(inference in record["report"] for record in records):
                columns = [Column("", f"report.{inference}.{name}", _digits(name)) for name in names]
                cells = [column.cell([column.value(record) for record in records]) for column in columns]
                lines.append((model, inference, *cells))
    heads = ("model", "inference", *(FIGURES[name] for name in names))
    return [titled("Table of Bahuleyan et al. 2018", table(heads, lines))]


def quality_diversity(comparison):
    """Trace quality against diversity of every model that draws, means over seeds; return the table of the curves."""
    options = comparison.options
    if not (options.latent_temperatures or options.word_temperatures):
        return []

    def arguments_of(run):
        if not MODELS[run.options.model].stochastic:
            return None
        arguments = ["--split", "valid", "--max-sources", str(CURVE_SOURCES)]
        for name in ("latent_temperatures", "word_temperatures"):
            if getattr(options, name):
                arguments += [f"--{name.replace('_', '-')}", *(f"{value:g}" for value in getattr(options, name))]
        return arguments

    curves = {}
    for name, reports in comparison.evaluate("quality_diversity", arguments_of).items():
        of_seeds = [report["report"]["curves"] for report in reports]
        for kind in of_seeds[0]:
            curves[f"{name}, {kind}"] = [
                (*np.mean([[point["entropy"], point["bleu_4"]] for point in points], axis=0), points[0]["temperature"])
                for points in zip(*(of_seed[kind] for of_seed in of_seeds), strict=True)
            ]
    draw_curves(curves, comparison.folder / "quality_diversity.png")
    lines = [(name, f"{at:g}", f"{x:.3f}", f"{y:.2f}") for name, curve in curves.items() for x, y, at in curve]
    heads = ("model, source of the draws", "temperature", "entropy (nats)", "BLEU-4")
    return [titled("Quality against diversity, validation, means over seeds", table(heads, lines))]


def draw_curves(curves, path):
    """Draw a dictionary from names to curves, each a list of (entropy, BLEU-4, temperature), and return the figure."""
    figure = new_figure(6.4, 4.6 + 0.22 * len(curves), layout="constrained")
    axes = figure.subplots()
    for index, (name, curve) in enumerate(curves.items()):
        lap, place = divmod(index, len(COLORS))
        look = {"color": COLORS[place], "marker": MARKERS[place], "linestyle": LINES[lap % len(LINES)]}
        axes.plot(*zip(*((x, y) for x, y, _ in curve), strict=True), **look, label=name)
        for x, y, temperature in curve:
            offset = {"xytext": (5, 5), "textcoords": "offset points"}
            axes.annotate(f"{temperature:g}", (x, y), **offset, fontsize=8, color=COLORS[place])
    axes.set(xlabel="entropy (nats)", ylabel="BLEU-4")
    axes.margins(0.12)
    axes.grid(color="0.9", linewidth=0.6)
    # Below the axes: inside them it would hide points.
    figure.legend(loc="outside lower center", frameon=False, fontsize=9)
    return finish(figure, path, dpi=150)
