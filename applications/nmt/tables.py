"""Define the columns of result tables, and lay out the tables of Deng et al. 2018 and Fan et al. 2020."""

from applications.common.papers import with_paper
from applications.common.tables import Column, title_from
from applications.nmt.model import MODELS

# Models in Tables 8 (cost) and 4 (quality) of Fan et al. 2020.
FAN_COST = ("variational_enum", "variational_sample", "wc", "lc")
FAN_QUALITY = ("soft", "relaxed", *FAN_COST)

KIND = Column("kind of PPL", "report.likelihood.kind")
PERPLEXITY = Column("PPL", "report.likelihood.perplexity", logarithm=True)
BLEU = Column("BLEU", "report.translation.bleu", 2)
STEP = Column("s/step", "step_seconds", differs=False)
# Titles and factors of the metrics in `--layout uncertainty`.
QUALITY = {"bleu": ("BLEU", 1.0), "chrf": ("chrF", 1.0)}


def _alignment_before_the_word(record):
    """Return the entropy and F1 of the prior or, for Bayesian models, of the mean weights."""
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
    Column("parameters of q (M)", "parameters.inference", 3, 1e-6, differs=False),
)


# Table 2 of Deng et al. 2018: "exact" sums over all alignments, "K-max 5" over the five most probable.
EXACT_AND_KMAX = (
    Column("PPL, exact", PERPLEXITY.of),
    Column("PPL, K-max 5", "kmax.likelihood.perplexity"),
    Column("BLEU, exact", BLEU.of, 2),
    Column("BLEU, K-max 5", "kmax.translation.bleu", 2),
)


def deng(comparison):
    """Return Tables 1, 2 and 3 of Deng et al. 2018, with our and the published results."""
    kinds = {name: MODELS[model] for name, model in comparison.models.items()}
    table_1 = with_paper(
        "Table 1 of Deng et al. 2018",
        "deng_1",
        (KIND, PERPLEXITY, BLEU),
        comparison.records,
        first=("model", "objective", "E"),
        first_of=lambda name: (_title(name, short=True), kinds[name].value, kinds[name].expectation),
    )
    parts = [table_1]
    kmax = _with_kmax(comparison)
    if kmax:
        title = "Table 2 of Deng et al. 2018"
        parts.append(with_paper(title, "deng_2", EXACT_AND_KMAX, kmax, first_of=lambda name: (_title(name),)))
    # Table 3 reports the entropy of a categorical alignment, which Bayesian models lack.
    latent = {name: records for name, records in comparison.records.items() if not kinds[name].is_bayesian}
    if latent:
        heads_of = lambda name: (_title(name, short=True), kinds[name].expectation)  # noqa: E731
        columns = (BLEU, Column("entropy of p (nats)", ENTROPY.of))
        title = "Table 3 of Deng et al. 2018"
        parts.append(with_paper(title, "deng_3", columns, latent, first=("model", "E"), first_of=heads_of))
    return parts


def _with_kmax(comparison):
    """Return the records of models with exact inference, with a report for kmax:5 as "kmax"."""

    def arguments_of(run):
        if MODELS[run.options.model].inference != "exact":
            return None
        return ["--split", comparison.read(run, "metrics.json")["split"], "--inference", "kmax:5"]

    records = {}
    for name, reports in comparison.evaluate("kmax", arguments_of).items():
        pairs = zip(comparison.records[name], reports, strict=True)
        records[name] = [record | {"kmax": report["report"]} for record, report in pairs]
    return records


def fan(comparison):
    """Return Tables 4 and 8 of Fan et al. 2020 for the compared models, with the published results."""
    parts = []
    parameters = Column("params (M)", lambda record: sum(record["parameters"].values()), 3, 1e-6)
    cost = "Table 8 of Fan et al. 2020; seconds measured in training, possibly while other programs ran"
    for title, paper, lines, columns in (
        ("Table 4 of Fan et al. 2020", "fan_4", FAN_QUALITY, (BLEU,)),
        (cost, "fan_8", FAN_COST, (STEP, parameters)),
    ):
        chosen = {name: records for name, records in comparison.records.items() if comparison.models[name] in lines}
        if chosen:
            parts.append(with_paper(title, paper, columns, chosen, first_of=lambda name: (_title(name),)))
    return parts


def _title(name, short=False):
    """Return the paper's title of a model. Append the estimator to shared titles, unless `short`."""

    def title_of(model):
        title, expectation = MODELS[model].title, MODELS[model].expectation
        is_shared = [model.title for model in MODELS.values()].count(title) > 1
        return f"{title} + {expectation}" if is_shared and not short else title

    return title_from(name, title_of)
