"""Computes risk-coverage curves: the quality of the most certain 10%, 20%, ..., 100% of the generated sentences."""

import numpy as np

from applications.common.significance import mean_interval, paired_interval
from applications.common.tables import interval_text, table, titled

TENTHS = range(1, 11)
# Number of permutations for the order "random".
NUM_ORDERS = 20


def coverage_report(sentences, scores, noise):
    """Return how the quality of generated sentences depends on the model's uncertainty about them.

    The sentences are sorted from most to least certain, once for each measure of uncertainty. Ties are broken randomly.
    A curve is the quality of the first 10%, 20%, ..., 100% of the sentences. The area is its mean. The measures are:
    - the mutual information and the entropy, if the sentences contain them;
    - "likelihood", -log p per word under the mean weights;
    - "random", a random order, for comparison.

    Args:
        sentences: List of dictionaries from `uncertainty.written_of`.
        scores: Dictionary that maps the name of a metric to a function, which scores the sentences at some indices.
        noise: Noise of the draws for the mutual information, "attention" or "dropout"; `None` without draws.

    Returns:
        Dictionary. "drawn" is `noise`; "entropy" and "mutual_information" are means in nats per word; "quality" is a
        dictionary {metric: {measure: {"area": ..., "curve": ...}}}.
    """
    column = lambda name: np.array([sentence[name] for sentence in sentences], "float64")  # noqa: E731
    uncertainties = {name: column(name) for name in ("mutual_information", "entropy") if name in sentences[0]}
    report = {"drawn": noise, **{name: float(x.mean()) for name, x in uncertainties.items()}, "quality": {}}
    uncertainties["likelihood"] = -column("log_likelihood") / column("num_words")
    generator = np.random.default_rng(0)
    random = [generator.permutation(len(sentences)) for _ in range(NUM_ORDERS)]
    orders = {name: [random[0][np.argsort(x[random[0]], kind="stable")]] for name, x in uncertainties.items()}
    sizes = [-(-tenth * len(sentences) // 10) for tenth in TENTHS]
    for metric, score in scores.items():
        report["quality"][metric] = curves = {}
        for name, permutations in (orders | {"random": random}).items():
            curve = np.mean([[score(order[:size]) for size in sizes] for order in permutations], axis=0)
            curves[name] = {"area": float(curve.mean()), "curve": curve.tolist()}
    return report


def coverage_lines(reports, metrics):
    """Return a list of Markdown tables, one per metric.

    `reports` maps a model to a list of its `coverage_report`s. `metrics` maps a metric to the title of its table and a
    factor for its values. Metrics that are not in all reports are skipped.
    """
    heads = ("model", "drawn", "sorted by", "area", "over random", "over likelihood", *(f"{10 * x}%" for x in TENTHS))
    tables = []
    for metric, (title, factor) in metrics.items():
        if any(metric not in report["quality"] for seed_reports in reports.values() for report in seed_reports):
            continue
        lines = []
        for model, seed_reports in reports.items():
            orders = seed_reports[0]["quality"][metric]
            areas, curves = (
                {name: [factor * np.array(x["quality"][metric][name][key]) for x in seed_reports] for name in orders}
                for key in ("area", "curve")
            )
            for name in orders:
                over = [
                    "-" if name == other else interval_text(paired_interval(areas[name], areas[other]), 2)
                    for other in ("random", "likelihood")
                ]
                curve = [f"{value:.1f}" for value in np.mean(curves[name], axis=0)]
                cells = (model, seed_reports[0]["drawn"] or "-", name.replace("_", " "))
                lines.append((*cells, interval_text(mean_interval(areas[name]), 2), *over, *curve))
        tables.append(titled(f"{title} of the 10% to 100% most certain sentences; area: mean", table(heads, lines)))
    return tables


def compared_coverage(comparison, metrics):
    """Run `evaluate --uncertainty` for all runs of a `Comparison`. Return the tables."""

    def arguments(run):
        return ["--split", comparison.read(run, "metrics.json")["split"], "--uncertainty"]

    reports = comparison.evaluate("uncertainty", arguments)
    by_model = {name: [x["report"]["uncertainty"] for x in seed_reports] for name, seed_reports in reports.items()}
    return coverage_lines(by_model, metrics)
