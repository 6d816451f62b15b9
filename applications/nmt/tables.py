"""Tables of a comparison in Markdown: all figures, the papers' layouts, and what resampling the sentences says."""

import math

from applications.common.markdown import interval_text, table
from applications.common.significance import NUM_RESAMPLES, compare_translations
from applications.nmt.evaluation import translation_metrics
from applications.nmt.options import ROWS
from applications.text.metrics import mean_interval, paired_interval

# Model, objective and expectation, as Table 1 of Deng et al. 2018 has them; BAM's from Fan et al. 2020, eq. 6.
MODELS = {
    "soft": ("Soft Attention", "log p(y | E[z])", "-"),
    "marginal": ("Marginal Likelihood", "log E[p]", "Enum"),
    "hard_enum": ("Hard Attention", "E_p[log p]", "Enum"),
    "hard_sample": ("Hard Attention", "E_p[log p]", "Sample"),
    "relaxed": ("Variational Relaxed Attention", "E_q[log p] - KL", "Sample"),
    "variational_enum": ("Variational Attention", "E_q[log p] - KL", "Enum"),
    "variational_sample": ("Variational Attention", "E_q[log p] - KL", "Sample"),
    "variational_gumbel": ("Variational Attention", "E_q[log p] - KL", "Gumbel-softmax"),
    "variational_wake_sleep": ("Variational Attention", "log p, importance sampled", "Wake-sleep"),
    "bam_weibull": ("BAM-WC", "E_q[log p] - KL", "Sample"),
    "bam_lognormal": ("BAM-LC", "E_q[log p] - KL", "Sample"),
}
# The lines of Table 4 and of Table 8 of Fan et al. 2020.
FAN_QUALITY = ("soft", "relaxed", "variational_enum", "variational_sample", "bam_weibull", "bam_lognormal")
FAN_COST = ("variational_enum", "variational_sample", "bam_weibull", "bam_lognormal")


def tables_of(found, baseline, hypotheses, references):
    """Return the tables of trained runs: one text with a heading over each.

    Args:
        found: Dictionary from the name of a row, "ROW@START" too, to what metrics.json holds of each seed's run.
        baseline: Name of the row that differences are taken against.
        hypotheses: Dictionary from the name of a row to the translations of each seed's run.
        references: List of str.
    """
    (first, *others) = next(iter(found.values()))
    claim = f"{1 + len(others)} seeds, mean [95% interval]" if others else "one seed, no claim"
    signature = first["report"]["translation"]["bleu_signature"]
    parts = [f"{claim}; {first['report']['num_sentences']} {first['split']} sentences; {signature}", _all(found)]
    if baseline not in found:
        parts.append(f"No differences: the baseline {baseline} is not among the rows.")
    elif len(found) > 1:
        parts += [_over_seeds(found, baseline)] if others else []
        parts.append(_over_sentences(baseline, hypotheses, references))
    parts += _deng(found) + _fan(found)
    return "\n\n".join(parts) + "\n"


def crossing_table(found):
    """Return PPL and BLEU of every row under every inference, and Table 2 of Deng et al. 2018.

    Args:
        found: Dictionary from the name of a row to what crossing.json holds of each seed's run.
    """
    lines, compared = [], {}
    for name, reports in found.items():
        for same in zip(*(report["inferences"] for report in reports), strict=True):
            cells = [
                _cell([report[part][key] for report in same])
                for part, key in (("likelihood", "perplexity"), ("translation", "bleu"))
            ]
            lines.append((name, same[0]["inference"], same[0]["likelihood"]["kind"], *cells))
            compared.setdefault(name, {})[same[0]["inference"]] = cells
    parts = [_titled("Crossing of training and inference", ("row", "inference", "kind of PPL", "PPL", "BLEU"), lines)]
    kmax = next((name for row in compared.values() for name in row if name.startswith("kmax:")), None)
    both = {name: row for name, row in compared.items() if {"exact", kmax} <= set(row)}
    if both:
        heads = [f"{figure}, {kind}" for figure in ("PPL", "BLEU") for kind in ("exact", f"K-max {kmax[5:]}")]
        lines = [
            (_title(name), *(row[inference][index] for index in (0, 1) for inference in ("exact", kmax)))
            for name, row in both.items()
        ]
        parts.append(_titled("Table 2 of Deng et al. 2018, left", ("model", *heads), lines))
    curves = {name: [report.get("k_curve") for report in reports] for name, reports in found.items()}
    curves = {name: of_seeds for name, of_seeds in curves.items() if of_seeds[0] is not None}
    if curves:
        ks = next(iter(curves.values()))[0]["k"]
        lines = [
            (
                _title(name),
                kind,
                *(_cell([math.exp(-curve[kind][index]) for curve in of_seeds]) for index in range(len(ks))),
            )
            for name, of_seeds in curves.items()
            for kind in ("renormalised", "plain")
        ]
        title = "Table 2 of Deng et al. 2018, right: perplexity of the K most probable alignments"
        parts.append(_titled(title, ("model", "sum", *(f"K {k}" for k in ks)), lines))
    return "\n\n".join(parts) + "\n"


def _all(found):
    columns = {
        "kind of PPL": _kind,
        "PPL": _perplexity,
        "PPL (ELBO)": lambda record: record["report"]["likelihood"].get("elbo_perplexity"),
        "BLEU": _bleu,
        "chrF": lambda record: record["report"]["translation"]["chrf"],
        "exact match (%)": lambda record: 100 * record["report"]["translation"]["exact_match"],
        "entropy": _entropy,
        "entropy of q": lambda record: record["report"]["alignment"].get("posterior_entropy"),
        "F1 (%)": _f1,
        "s/step": _step,
        "parameters (M)": lambda record: record["parameters"]["generative"] / 1e6,
        "inference (M)": lambda record: record["parameters"]["inference"] / 1e6,
    }
    title = "All figures; entropy (nats) and F1 of the alignment that has not seen the word: p, or the mean of BAM"
    return _figures(title, found, ("row",), lambda name: (name,), columns)


def _over_seeds(found, baseline):
    """Return the table of paired differences over seeds, with 95% intervals."""
    columns = {"log PPL": lambda record: math.log(_perplexity(record)), "BLEU": _bleu, "entropy": _entropy}
    lines = []
    for name, records in found.items():
        if name != baseline:
            pairs = [[[of(record) for record in row] for row in (records, found[baseline])] for of in columns.values()]
            cells = [
                "-" if None in (*one, *other) else interval_text(paired_interval(one, other)) for one, other in pairs
            ]
            lines.append((name, f"{_kind(records[0])} - {_kind(found[baseline][0])}", *cells))
    return _titled(f"Paired differences over seeds against {baseline}", ("row", "kinds of PPL", *columns), lines)


def _over_sentences(baseline, hypotheses, references):
    """Return the table of paired differences of each seed when the sentences are drawn again."""
    lines = []
    for name, of_seeds in hypotheses.items():
        for seed, sentences in enumerate(of_seeds if name != baseline else ()):
            cells = []
            for metric in translation_metrics().values():
                found = compare_translations(metric, sentences, hypotheses[baseline][seed], references)
                cells += [f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]", f"{found.p:.3f}"]
            lines.append((name, seed, *cells))
    title = f"Paired bootstrap over sentences against {baseline}, {NUM_RESAMPLES} resamples, p two-sided"
    return _titled(title, ("row", "seed", "BLEU", "p of BLEU", "chrF", "p of chrF"), lines)


def _deng(found):
    """Return Table 1, and the right half of Table 3, of Deng et al. 2018."""
    table_1 = _figures(
        "Table 1 of Deng et al. 2018",
        found,
        ("model", "objective", "E"),
        lambda name: (_title(name, short=True), *MODELS[_row(name)][1:]),
        {"kind of PPL": _kind, "PPL": _perplexity, "BLEU": _bleu},
    )
    # The distribution of BAM is not a categorical one, whose entropy this is.
    latent = {name: records for name, records in found.items() if not ROWS[_row(name)].is_bayesian}
    table_3 = _figures(
        "Table 3 of Deng et al. 2018, right",
        latent,
        ("model", "E"),
        lambda name: (_title(name, short=True), MODELS[_row(name)][2]),
        {"entropy of p (nats)": _entropy},
    )
    return [table_1, table_3] if latent else [table_1]


def _fan(found):
    """Return Tables 4 and 8 of Fan et al. 2020, as far as their lines are there."""
    parts = []
    for title, rows, columns in (
        ("Table 4 of Fan et al. 2020", FAN_QUALITY, {"BLEU": _bleu}),
        (
            "Table 8 of Fan et al. 2020; seconds as they were in training, beside whatever else ran",
            FAN_COST,
            {"s/step": _step, "params (M)": lambda record: sum(record["parameters"].values()) / 1e6},
        ),
    ):
        chosen = {name: records for name, records in found.items() if _row(name) in rows}
        if chosen:
            parts.append(_figures(title, chosen, ("model",), lambda name: (_title(name),), columns))
    return parts


def _figures(title, found, heads, heads_of, columns):
    """Return a table of a line for each row: what `heads_of` its name, and the mean of each column over its seeds."""
    lines = [
        (*heads_of(name), *(_cell([of(record) for record in records]) for of in columns.values()))
        for name, records in found.items()
    ]
    return _titled(title, (*heads, *columns), lines)


def _titled(title, heads, lines):
    return f"{title}\n\n{table(heads, lines)}"


def _row(name):
    return name.partition("@")[0]


def _title(name, short=False):
    """Return the paper's name of a row; unless it is to be short, with how the expectation is taken."""
    row, _, start = name.partition("@")
    title, _, expectation = MODELS[row]
    if not short and [model[0] for model in MODELS.values()].count(title) > 1:
        title = f"{title} + {expectation}"
    return title + (f", from {_title(start)}" if start else "")


def _kind(record):
    return record["report"]["likelihood"]["kind"]


def _perplexity(record):
    return record["report"]["likelihood"]["perplexity"]


def _bleu(record):
    return record["report"]["translation"]["bleu"]


def _entropy(record):
    alignment = record["report"]["alignment"]
    return alignment.get("prior_entropy", alignment.get("mean_entropy"))


def _f1(record):
    alignment = record["report"]["alignment"]
    scores = alignment.get("prior", alignment.get("mean"))
    return None if scores is None else 100 * scores["f1"]


def _step(record):
    return record["step_seconds"]


def _cell(values):
    """Return the mean of values and its 95% interval; of words the words, of nothing a dash."""
    if any(value is None for value in values):
        return "-"
    if isinstance(values[0], str):
        return values[0]
    return interval_text(mean_interval(values))
