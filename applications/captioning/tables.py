"""Columns of the tables, and the paper's layout."""

from applications.captioning.options import MODELS
from applications.common.tables import Column, main_table, spread, title_from, titled

BLEU = tuple(Column(f"BLEU-{order}", f"report.captions.bleu_{order}", 1, 100) for order in (4, 3, 2, 1))
OTHERS = tuple(
    Column(title, f"report.captions.{name}", 1, 100)
    for title, name in (("CIDEr", "cider"), ("ROUGE-L", "rouge_l"), ("METEOR", "meteor"))
)
COLUMNS = (
    Column("kind of PPL", "report.likelihood.kind"),
    Column("PPL", "report.likelihood.perplexity", logarithm=True),
    Column("PPL (predictive)", "report.likelihood.predictive", logarithm=True),
    *BLEU,
    *OTHERS,
    Column("true captions (%)", "report.true", 1, 100),
    Column("entropy of attention (nats)", "report.attention.entropy"),
    *(
        Column(f"pointing, {name} (%)", f"report.attention.pointing.{name}.accuracy", 1, 100)
        for name in ("all", "color", "shape")
    ),
    Column("pointing, p(region | word) (%)", "report.attention.posterior.pointing.all.accuracy", 1, 100),
    Column("chance (%)", "report.attention.pointing.all.chance", 1, 100, differs=False),
    Column("sd of weights", lambda record: spread(record["report"]["attention"].get("weights_sd")), differs=False),
    Column("entropy of the prior (nats)", "report.attention.prior_entropy", differs=False),
    Column("s/step", "step_seconds", differs=False),
    Column("parameters (M)", "parameters.generative", 3, 1e-6, differs=False),
)


def fan(comparison):
    """Return Table 3 of Fan et al. 2020."""
    title_of = lambda name: (title_from(name, lambda model: MODELS[model].title),)  # noqa: E731
    text = main_table((*BLEU, *OTHERS), comparison.records, first_of=title_of)
    return [titled("Table 3 of Fan et al. 2020", text)]
