"""Tables of a comparison: the papers' layouts, what resampling the sentences says, crossing of inferences."""

from applications.common.bounds import perplexity
from applications.common.significance import NUM_RESAMPLES, compare_translations
from applications.common.tables import Column, main_table, table, titled
from applications.nmt.evaluation import translation_metrics
from applications.nmt.options import MODELS

# The lines of Table 4 and of Table 8 of Fan et al. 2020.
FAN_QUALITY = ("soft", "relaxed", "variational_enum", "variational_sample", "wc", "lc")
FAN_COST = ("variational_enum", "variational_sample", "wc", "lc")

KIND = Column("kind of PPL", "report.likelihood.kind")
PERPLEXITY = Column("PPL", "report.likelihood.perplexity", logarithm=True)
BLEU = Column("BLEU", "report.translation.bleu", 2)
STEP = Column("s/step", "step_seconds", differs=False)


def _of_alignment(p, mean):
    """Return the function of a record that finds what it has of p, or of the mean of BAM's weights."""

    def found(record):
        alignment = record["report"]["alignment"]
        return alignment.get(p, alignment.get(mean))

    return found


def _f1(record):
    scores = _of_alignment("prior", "mean")(record)
    return None if scores is None else scores["f1"]


# Of the alignment that has not seen the word: p, or the mean of BAM.
ENTROPY = Column("entropy (nats)", _of_alignment("prior_entropy", "mean_entropy"))
COLUMNS = (
    KIND,
    PERPLEXITY,
    Column("PPL (ELBO)", "report.likelihood.elbo_perplexity", logarithm=True),
    BLEU,
    Column("chrF", "report.translation.chrf", 2),
    Column("exact match (%)", "report.translation.exact_match", 1, 100),
    ENTROPY,
    Column("entropy of q (nats)", "report.alignment.posterior_entropy"),
    Column("F1 (%)", _f1, 1, 100),
    STEP,
    Column("parameters (M)", "parameters.generative", 3, 1e-6, differs=False),
    Column("inference (M)", "parameters.inference", 3, 1e-6, differs=False),
)


def over_sentences(comparison):
    """Return the table of paired differences of each seed when the sentences are drawn again; a sentence names models
    with other references than the baseline's, for which there are no pairs."""
    baseline, lines, apart = comparison.options.baseline, [], []
    hypotheses, references = (
        comparison.of_models(lambda run, name=name: comparison.lines(run, name))
        for name in ("hypotheses", "references")
    )
    for name, of_seeds in hypotheses.items():
        if references[name] != references[baseline]:
            apart.append(name)
            continue
        for index, sentences in enumerate(of_seeds if name != baseline else ()):
            cells = []
            # The files have the case in which sentences are compared.
            for metric in translation_metrics(lowercase=False).values():
                found = compare_translations(
                    metric, sentences, hypotheses[baseline][index], references[baseline][index]
                )
                cells += [f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]", f"{found.p:.3f}"]
            lines.append((name, comparison.options.first_seed + index, *cells))
    title = f"Paired bootstrap over sentences against {baseline}, {NUM_RESAMPLES} resamples, p two-sided"
    parts = [titled(title, table(("model", "seed", "BLEU", "p of BLEU", "chrF", "p of chrF"), lines))] if lines else []
    if apart:
        parts.append(f"Not compared with {baseline}, whose reference sentences are others: {', '.join(apart)}.")
    return "\n\n".join(parts)


def deng(comparison):
    """Return Table 1, and the right half of Table 3, of Deng et al. 2018."""
    kinds = {name: MODELS[model] for name, model in comparison.models.items()}
    table_1 = main_table(
        (KIND, PERPLEXITY, BLEU),
        comparison.records,
        ("model", "objective", "E"),
        lambda name: (_title(name, short=True), kinds[name].value, kinds[name].expectation),
    )
    parts = [titled("Table 1 of Deng et al. 2018", table_1)]
    # The distribution of BAM is not a categorical one, whose entropy this is.
    latent = {name: records for name, records in comparison.records.items() if not kinds[name].is_bayesian}
    if latent:
        heads_of = lambda name: (_title(name, short=True), kinds[name].expectation)  # noqa: E731
        text = main_table((Column("entropy of p (nats)", ENTROPY.of),), latent, ("model", "E"), heads_of)
        parts.append(titled("Table 3 of Deng et al. 2018, right", text))
    return parts


def fan(comparison):
    """Return Tables 4 and 8 of Fan et al. 2020, as far as their lines are there."""
    parts = []
    parameters = Column("params (M)", lambda record: sum(record["parameters"].values()), 3, 1e-6)
    for title, lines, columns in (
        ("Table 4 of Fan et al. 2020", FAN_QUALITY, (BLEU,)),
        (
            "Table 8 of Fan et al. 2020; seconds as they were in training, beside whatever else ran",
            FAN_COST,
            (STEP, parameters),
        ),
    ):
        chosen = {name: records for name, records in comparison.records.items() if comparison.models[name] in lines}
        if chosen:
            parts.append(titled(title, main_table(columns, chosen, first_of=lambda name: (_title(name),))))
    return parts


def crossing(comparison, inference_of):
    """Evaluate every run under every inference that it has; return PPL and BLEU, and Table 2 of Deng et al. 2018.

    Args:
        comparison: `Comparison`.
        inference_of: Function of the name of a model that returns the names of its inferences.
    """
    options = comparison.options

    def arguments_of(run):
        k_curve = 0 if MODELS[run.options.model].is_continuous else options.k_curve
        return ["--split", options.split, "--inference", *inference_of(run.name), "--k-curve", str(k_curve)]

    found = comparison.evaluate(f"crossing_{options.split}", arguments_of)
    lines, compared = [], {}
    for name, reports in found.items():
        for inference, of_first in reports[0]["report"]["inferences"].items():
            same = [{"report": report["report"]["inferences"][inference]} for report in reports]
            cells = [column.cell([column.value(record) for record in same]) for column in (PERPLEXITY, BLEU)]
            lines.append((name, inference, of_first["likelihood"]["kind"], *cells))
            compared.setdefault(name, {})[inference] = cells
    heads = ("model", "inference", "kind of PPL", "PPL", "BLEU")
    parts = [titled("Crossing of training and inference", table(heads, lines))]
    kmax = next((name for cells in compared.values() for name in cells if name.startswith("kmax:")), None)
    both = {name: cells for name, cells in compared.items() if {"exact", kmax} <= set(cells)}
    if both:
        heads = [f"{figure}, {kind}" for figure in ("PPL", "BLEU") for kind in ("exact", f"K-max {kmax[5:]}")]
        lines = [
            (_title(name), *(cells[inference][index] for index in (0, 1) for inference in ("exact", kmax)))
            for name, cells in both.items()
        ]
        parts.append(titled("Table 2 of Deng et al. 2018, left", table(("model", *heads), lines)))
    curves = {name: [report["report"].get("k_curve") for report in reports] for name, reports in found.items()}
    curves = {name: of_seeds for name, of_seeds in curves.items() if of_seeds[0] is not None}
    if curves:
        ks = next(iter(curves.values()))[0]["k"]
        lines = [
            (
                _title(name),
                kind,
                *(PERPLEXITY.cell([perplexity(-curve[kind][index]) for curve in of_seeds]) for index in range(len(ks))),
            )
            for name, of_seeds in curves.items()
            for kind in ("renormalised", "plain")
        ]
        title = "Table 2 of Deng et al. 2018, right: perplexity of the K most probable alignments"
        parts.append(titled(title, table(("model", "sum", *(f"K {k}" for k in ks)), lines)))
    return parts


def _title(name, short=False):
    """Return the paper's name of a model; unless it is to be short, with how the expectation is taken."""
    model, at, rest = name.partition("@")
    start, colon, options = (rest if at else model).partition(":")
    found = MODELS[model.partition(":")[0]]
    title = found.title
    if not short and [model.title for model in MODELS.values()].count(title) > 1:
        title = f"{title} + {found.expectation}"
    title += f", from {_title(start)}" if at else ""
    return title + (f" ({options})" if colon else "")
