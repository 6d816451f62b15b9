"""Risk-coverage curves of generated sentences: the quality of the sentences that a model is most certain of."""

import numpy as np

from applications.common.significance import mean_interval, paired_interval
from applications.common.tables import interval_text, table, titled

# Coverages, in tenths.
TENTHS = range(1, 11)
# Number of random orders that the order "random" averages over.
NUM_ORDERS = 20


def coverage_report(sentences, scores, noise):
    """Return how the quality of sentences depends on their uncertainty.

    The sentences are sorted from the most to the least certain: by mutual information, by entropy, by negative log p
    per word under the mean weights, and at random; ties are in random order. A curve is the quality of the first 10%,
    20%, ... 100% of the sentences, and its area the mean of the ten.

    Args:
        sentences: Results of `uncertainty.written_of`.
        scores: Dictionary from the name of a metric to a function of an array of rows that scores these sentences.
        noise: The source of draws, "attention" or "dropout"; `None` for no draws, and then there is no mutual
            information.

    Returns:
        Dictionary: "drawn" (`noise`), the means "entropy" and "mutual_information" in nats per word, and "quality", for
        each metric and each order {"area", "curve"}.
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
    """Return the Markdown tables of `reports`, a dictionary from a model to the `coverage_report` of each seed.

    `metrics` is a dictionary from a metric to the title of its table and a factor; unreported metrics are skipped.
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
        tables.append(titled(f"{title} of the most certain sentences (area: mean of the ten)", table(heads, lines)))
    return tables


def compared_coverage(comparison, metrics):
    """Evaluate every run of a `Comparison` with --uncertainty, and return the tables of `coverage_lines`."""

    def arguments(run):
        return ["--split", comparison.read(run, "metrics.json")["split"], "--uncertainty"]

    reports = comparison.evaluate("uncertainty", arguments)
    by_model = {name: [x["report"]["uncertainty"] for x in seed_reports] for name, seed_reports in reports.items()}
    return coverage_lines(by_model, metrics)
