"""Columns of the tables, the papers' layouts, and the crossing of training and inference."""

import itertools

from applications.common.bounds import perplexity
from applications.common.papers import beside, data_of_both, printed
from applications.common.tables import Column, table, title_from, titled
from applications.common.training_curves import training_curves
from applications.nmt.options import MODELS
from applications.text.coverage import compared_coverage

# The lines of Table 8 and of Table 4 of Fan et al. 2020.
FAN_COST = ("variational_enum", "variational_sample", "wc", "lc")
FAN_QUALITY = ("soft", "relaxed", *FAN_COST)

KIND = Column("kind of PPL", "report.likelihood.kind")
PERPLEXITY = Column("PPL", "report.likelihood.perplexity", logarithm=True)
BLEU = Column("BLEU", "report.translation.bleu", 2)
STEP = Column("s/step", "step_seconds", differs=False)


# Metrics of the most certain translations.
QUALITY = {"bleu": ("BLEU", 1.0), "chrf": ("chrF", 1.0)}


def _alignment_before_the_word(record):
    """Return the figures of p, or of the mean of BAM's weights: of the alignment that has not seen the word."""
    report = record["report"]["alignment"]
    name = "prior" if "prior_entropy" in report else "mean"
    return {"entropy": report.get(f"{name}_entropy"), "f1": report.get(name, {}).get("f1")}


ENTROPY = Column("entropy (nats)", lambda record: _alignment_before_the_word(record)["entropy"])
COLUMNS = (
    KIND,
    PERPLEXITY,
    Column("PPL (ELBO)", "report.likelihood.elbo_perplexity", logarithm=True),
    BLEU,
    Column("chrF", "report.translation.chrf", 2),
    Column("exact match (%)", "report.translation.exact_match", 1, 100),
    ENTROPY,
    Column("entropy of q (nats)", "report.alignment.posterior_entropy"),
    Column("F1 (%)", lambda record: _alignment_before_the_word(record)["f1"], 1, 100),
    Column("other source (nats)", "report.controls.source.nats", differs=False),
    STEP,
    Column("parameters (M)", "parameters.generative", 3, 1e-6, differs=False),
    Column("inference (M)", "parameters.inference", 3, 1e-6, differs=False),
)


def deng(comparison):
    """Return Tables 1 and 3 of Deng et al. 2018, beside the paper's figures."""
    kinds = {name: MODELS[model] for name, model in comparison.models.items()}
    table_1 = beside(
        "Table 1 of Deng et al. 2018",
        "deng_1",
        (KIND, PERPLEXITY, BLEU),
        comparison.records,
        first=("model", "objective", "E"),
        first_of=lambda name: (_title(name, short=True), kinds[name].value, kinds[name].expectation),
    )
    parts = [table_1]
    # The entropy is of a categorical distribution, which BAM has not.
    latent = {name: records for name, records in comparison.records.items() if not kinds[name].is_bayesian}
    if latent:
        heads_of = lambda name: (_title(name, short=True), kinds[name].expectation)  # noqa: E731
        columns = (BLEU, Column("entropy of p (nats)", ENTROPY.of))
        title = "Table 3 of Deng et al. 2018"
        parts.append(beside(title, "deng_3", columns, latent, first=("model", "E"), first_of=heads_of))
    return parts


def fan(comparison):
    """Return Tables 4 and 8 of Fan et al. 2020, with the lines that the comparison has, beside the paper's figures."""
    parts = []
    parameters = Column("params (M)", lambda record: sum(record["parameters"].values()), 3, 1e-6)
    cost = "Table 8 of Fan et al. 2020; seconds as they were in training, beside whatever else ran"
    for title, paper, lines, columns in (
        ("Table 4 of Fan et al. 2020", "fan_4", FAN_QUALITY, (BLEU,)),
        (cost, "fan_8", FAN_COST, (STEP, parameters)),
    ):
        chosen = {name: records for name, records in comparison.records.items() if comparison.models[name] in lines}
        if chosen:
            parts.append(beside(title, paper, columns, chosen, first_of=lambda name: (_title(name),)))
    return parts


def uncertainty(comparison):
    """Return the BLEU and chrF of the translations that every model is most certain of."""
    num_draws = comparison.options.num_draws
    arguments = [] if num_draws is None else ["--num-draws", str(num_draws)]
    return compared_coverage(comparison, QUALITY, lambda run: arguments)


def crossing(comparison):
    """Evaluate every run under every inference it has; return PPL and BLEU, and Table 2 of Deng et al. 2018."""
    options = comparison.options

    def arguments_of(run):
        kind, names = MODELS[run.options.model], options.inference
        if kind.is_continuous:
            known = ("soft",) if kind.is_bayesian else ("soft", "sample")
            names = [name for name in names if name.partition(":")[0] in known] or [kind.inference]
        k_curve = 0 if kind.is_continuous else options.k_curve
        split = comparison.read(run, "metrics.json")["split"]
        return ["--split", split, "--inference", *names, "--k-curve", str(k_curve)]

    reports_of = comparison.evaluate("crossing", arguments_of)
    lines, cells_of = [], {}
    for name, reports in reports_of.items():
        for inference, of_first in reports[0]["report"]["inferences"].items():
            same = [{"report": report["report"]["inferences"][inference]} for report in reports]
            cells = [column.cell([column.value(record) for record in same]) for column in (PERPLEXITY, BLEU)]
            lines.append((name, inference, of_first["likelihood"]["kind"], *cells))
            cells_of.setdefault(name, {})[inference] = cells
    heads = ("model", "inference", "kind of PPL", "PPL", "BLEU")
    parts = [titled("Crossing of training and inference", table(heads, lines))]
    kmax = next((name for name in options.inference if name.startswith("kmax:")), None)
    both = {name: cells for name, cells in cells_of.items() if {"exact", kmax} <= set(cells)}
    if both:
        heads = [f"{figure}, {kind}" for figure in ("PPL", "BLEU") for kind in ("exact", f"K-max {kmax[5:]}")]
        heads = [title for head in heads for title in (head, f"{head}, paper")]
        lines = []
        for name, cells in both.items():
            ours = [cells[inference][index] for index in (0, 1) for inference in ("exact", kmax)]
            pairs = zip(ours, (printed("deng_2", name, head) for head in heads[::2]), strict=True)
            lines.append((_title(name), *itertools.chain(*pairs)))
        title = f"Table 2 of Deng et al. 2018, left; {data_of_both('deng_2', comparison.records)}"
        parts.append(titled(title, table(("model", *heads), lines)))
    lines, drawn = [], {}
    for name, reports in reports_of.items():
        curves = [report["report"].get("k_curve") for report in reports]
        if None not in curves:
            # Of K-max, and the dotted line of the paper: what soft attention reaches without alignments.
            of_seeds = [[perplexity(-x) for x in curve["renormalised"]] for curve in curves]
            drawn[_title(name)] = of_seeds
            if MODELS[comparison.models[name]].objective == "soft":
                plug_in = map(PERPLEXITY.value, comparison.records[name])
                drawn[f"{_title(name)}, plug-in"] = [len(curves[0]["k"]) * [value] for value in plug_in]
        for kind in ("renormalised", "plain") if None not in curves else ():
            by_k = zip(*(curve[kind] for curve in curves), strict=True)
            lines.append((_title(name), kind, *(PERPLEXITY.cell([perplexity(-x) for x in nats]) for nats in by_k)))
    if lines:
        rows_of = lambda of_seeds: [[{"K": k, "PPL": x} for k, x in enumerate(of, start=1)] for of in of_seeds]  # noqa: E731
        histories = {name: rows_of(of_seeds) for name, of_seeds in drawn.items()}
        training_curves(histories, {"PPL": "perplexity, K-max"}, comparison.folder / "k_curve.png", x="K")
        title = "Table 2 of Deng et al. 2018, right: perplexity of the K most probable alignments"
        heads = ("model", "sum", *(f"K {k}" for k in range(1, len(lines[0]) - 1)))
        parts.append(titled(title, table(heads, lines)))
    return parts


def _title(name, short=False):
    """Return the paper's title of an entry of `compare`; unless `short`, with how the expectation is taken."""

    def title_of(model):
        title, expectation = MODELS[model].title, MODELS[model].expectation
        is_shared = [each.title for each in MODELS.values()].count(title) > 1
        return f"{title} + {expectation}" if is_shared and not short else title

    return title_from(name, title_of)
