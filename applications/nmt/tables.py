"""Tables of a comparison in Markdown: all figures, the papers' layouts, and what resampling the sentences says."""

import math

from sacrebleu.significance import PairedTest

from applications.common.metrics import mean_interval, paired_interval
from applications.nmt.evaluation import metrics_of
from applications.nmt.options import find_row

NUM_RESAMPLES = 1000
# Model, objective and expectation, as Table 1 of Deng et al. 2018 has them; BAM's from Fan et al. 2020, eq. 6.
MODELS = {
    "soft": ("Soft Attention", "log p(y | E[z])", "-"),
    "marginal": ("Marginal Likelihood", "log E[p]", "Enum"),
    "hard_enum": ("Hard Attention", "E_p[log p]", "Enum"),
    "hard_sample": ("Hard Attention", "E_p[log p]", "Sample"),
    "relaxed": ("Variational Relaxed Attention", "E_q[log p] - KL", "Sample"),
    "variational_enum": ("Variational Attention", "E_q[log p] - KL", "Enum"),
    "variational_sample": ("Variational Attention", "E_q[log p] - KL", "Sample"),
    "variational_gumbel": ("Variational Attention, Gumbel-softmax", "E_q[log p] - KL", "Sample"),
    "variational_wake_sleep": ("Variational Attention, wake-sleep", "log p, importance sampled", "Sample"),
    "bam_weibull": ("BAM-WC", "E_q[log p] - KL", "Sample"),
    "bam_lognormal": ("BAM-LC", "E_q[log p] - KL", "Sample"),
}
# The lines of Table 4 and of Table 8 of Fan et al. 2020.
FAN_QUALITY = ("soft", "relaxed", "variational_enum", "variational_sample", "bam_weibull", "bam_lognormal")
FAN_COST = ("variational_enum", "variational_sample", "bam_weibull", "bam_lognormal")


def tables_of(rows, seeds, baseline, records, hypotheses, references):
    """Return the tables of trained runs: one text with a heading over each.

    Args:
        rows: Names of the rows, in order; "ROW@START" too.
        seeds: Number of seeds.
        baseline: Name of the row that differences are taken against.
        records: Dictionary from (row, seed) to what metrics.json holds.
        hypotheses: Dictionary from (row, seed) to the run's translations.
        references: List of str.
    """
    first = records[rows[0], 0]
    claim = "one seed, no claim" if seeds == 1 else f"{seeds} seeds, mean [95% interval]"
    translation = first["report"]["translation"]
    head = f"{claim}; {first['report']['num_sentences']} {first['split']} sentences; {translation['bleu_signature']}"
    found = {name: [records[name, seed] for seed in range(seeds)] for name in rows}
    parts = [head, _all_figures(found)]
    if seeds > 1 and baseline in rows:
        parts.append(_differences(found, baseline))
    if baseline in rows and len(rows) > 1:
        parts += [_resampled(rows, seeds, baseline, hypotheses, references)]
    parts += [_deng_1(found), _deng_3(found)]
    for title, lines, columns in (
        ("Table 4 of Fan et al. 2020", FAN_QUALITY, {"BLEU": _bleu}),
        ("Table 8 of Fan et al. 2020", FAN_COST, {"s/step": _step, "params (M)": _all_parameters}),
    ):
        chosen = {name: records for name, records in found.items() if _start(name) in lines}
        if chosen:
            parts.append(_table(title, chosen, columns, lambda name: (_title(name),), ("method",)))
    return "\n\n".join(parts) + "\n"


def crossing_table(rows, seeds, found):
    """Return PPL and BLEU of every row under every inference, and Table 2 of Deng et al. 2018.

    Args:
        rows: Names of the rows, in order.
        seeds: Number of seeds.
        found: Dictionary from (row, seed) to what crossing.json holds.
    """
    lines = ["Crossing of training and inference", "", "| row | inference | kind of PPL | PPL | BLEU |"]
    lines.append("|" + "---|" * 5)
    compared = {}
    for name in rows:
        reports = [found[name, seed]["inferences"] for seed in range(seeds)]
        for same in zip(*reports, strict=True):
            perplexity, bleu = (
                cell([report[part][key] for report in same])
                for part, key in (("likelihood", "perplexity"), ("translation", "bleu"))
            )
            kind, inference = same[0]["likelihood"]["kind"], same[0]["inference"]
            lines.append(f"| {name} | {inference} | {kind} | {perplexity} | {bleu} |")
            compared.setdefault(name, {})[inference] = (perplexity, bleu)
    parts = ["\n".join(lines)]
    inferences = dict.fromkeys(inference for row in compared.values() for inference in row)
    kmax = next((name for name in inferences if name.startswith("kmax:")), None)
    if kmax is not None and "exact" in inferences:
        number = kmax.partition(":")[2]
        lines = ["Table 2 of Deng et al. 2018, left", ""]
        lines.append(f"| model | PPL, exact | PPL, K-max {number} | BLEU, exact | BLEU, K-max {number} |")
        lines.append("|" + "---|" * 5)
        for name, row in compared.items():
            if {"exact", kmax} <= set(row):
                cells = [row[inference][index] for index in (0, 1) for inference in ("exact", kmax)]
                lines.append(f"| {_title(name)} | " + " | ".join(cells) + " |")
        parts.append("\n".join(lines))
    curves = {
        name: [found[name, seed]["k_curve"] for seed in range(seeds)] for name in rows if "k_curve" in found[name, 0]
    }
    if curves:
        ks = next(iter(curves.values()))[0]["k"]
        lines = ["Table 2 of Deng et al. 2018, right: perplexity of the K most probable alignments", ""]
        lines += ["| model | sum | " + " | ".join(f"K {k}" for k in ks) + " |", "|" + "---|" * (len(ks) + 2)]
        for name, of_seeds in curves.items():
            for kind in ("renormalised", "plain"):
                cells = [cell([math.exp(-curve[kind][index]) for curve in of_seeds]) for index in range(len(ks))]
                lines.append(f"| {_title(name)} | {kind} | " + " | ".join(cells) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _all_figures(found):
    columns = {
        "kind of PPL": lambda record: record["report"]["likelihood"]["kind"],
        "PPL": _perplexity,
        "PPL (ELBO)": lambda record: record["report"]["likelihood"].get("elbo_perplexity"),
        "BLEU": _bleu,
        "chrF": lambda record: record["report"]["translation"]["chrf"],
        "exact match": lambda record: 100 * record["report"]["translation"]["exact_match"],
        "prior entropy": _entropy,
        "posterior entropy": lambda record: record["report"]["alignment"].get("posterior_entropy"),
        "F1": lambda record: _percent(record["report"]["alignment"].get("prior", {}).get("f1")),
        "s/step": _step,
        "parameters (M)": lambda record: record["parameters"]["generative"] / 1e6,
        "inference (M)": lambda record: record["parameters"]["inference"] / 1e6,
    }
    return _table("All figures", found, columns, lambda name: (name,), ("row",))


def _differences(found, baseline):
    """Return the table of paired differences over seeds, with 95% intervals."""
    columns = {"log PPL": lambda record: math.log(_perplexity(record)), "BLEU": _bleu, "prior entropy": _entropy}
    lines = [f"Paired differences against {baseline}", "", "| row | " + " | ".join(columns) + " |"]
    lines.append("|" + "---|" * (len(columns) + 1))
    for name, records in found.items():
        if name != baseline:
            pairs = [[[of(record) for record in row] for row in (records, found[baseline])] for of in columns.values()]
            cells = [
                "-" if None in (*first, *second) else _interval_text(paired_interval(first, second))
                for first, second in pairs
            ]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _resampled(rows, seeds, baseline, hypotheses, references):
    """Return sacrebleu's paired bootstrap of every row against the baseline: its sentences are drawn again."""
    lines = [
        f"Paired bootstrap over sentences against {baseline}, {NUM_RESAMPLES} resamples: score, half of its 95% "
        "interval, and p of a difference that large by chance",
        "",
        "| row | seed | BLEU | p | chrF | p |",
        "|---|---|---|---|---|---|",
    ]
    for seed in range(seeds):
        systems = [(name, hypotheses[name, seed]) for name in sorted(rows, key=lambda name: name != baseline)]
        _, scores = PairedTest(
            systems, metrics_of([references]), references=None, test_type="bs", n_samples=NUM_RESAMPLES
        )()
        names, *of_metrics = scores.values()
        for name, *results in zip(names, *of_metrics, strict=True):
            cells = []
            for result in results:
                cells += [
                    f"{result.score:.2f} ± {result.ci:.2f}",
                    "-" if result.p_value is None else f"{result.p_value:.3f}",
                ]
            lines.append(f"| {name} | {seed} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _deng_1(found):
    columns = {"PPL": _perplexity, "BLEU": _bleu}
    heads = ("model", "objective", "E")
    return _table("Table 1 of Deng et al. 2018", found, columns, lambda name: (_title(name), *_model(name)[1:]), heads)


def _deng_3(found):
    columns = {"entropy of the prior, nats": _entropy}
    heads = ("model", "E")
    return _table(
        "Table 3 of Deng et al. 2018, right",
        found,
        columns,
        lambda name: (_title(name), _model(name)[2]),
        heads,
    )


def _table(title, found, columns, heads_of, heads):
    lines = [title, "", "| " + " | ".join((*heads, *columns)) + " |", "|" + "---|" * (len(heads) + len(columns))]
    for name, records in found.items():
        cells = [cell([of(record) for record in records]) for of in columns.values()]
        lines.append("| " + " | ".join((*heads_of(name), *cells)) + " |")
    return "\n".join(lines)


def _start(name):
    return name.partition("@")[0]


def _model(name):
    find_row(_start(name))
    return MODELS[_start(name)]


def _title(name):
    row, _, start = name.partition("@")
    return MODELS[row][0] + (f", from {MODELS[start][0]}" if start else "")


def _perplexity(record):
    return record["report"]["likelihood"]["perplexity"]


def _bleu(record):
    return record["report"]["translation"]["bleu"]


def _entropy(record):
    return record["report"]["alignment"].get("prior_entropy")


def _step(record):
    return record["step_seconds"]


def _all_parameters(record):
    return sum(record["parameters"].values()) / 1e6


def _percent(value):
    return None if value is None else 100 * value


def cell(values):
    """Return the mean of values and its 95% interval; of words the words, of nothing a dash."""
    if any(value is None for value in values):
        return "-"
    if isinstance(values[0], str):
        return values[0]
    return _interval_text(mean_interval(values))


def _interval_text(interval):
    if interval.low != interval.low:
        return f"{interval.mean:.3f}"
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"
