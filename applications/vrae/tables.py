"""Columns of the tables, and the paper's layout."""

from applications.common.tables import Column, main_table, title_from, titled
from applications.vrae.options import MODELS

_LIKELIHOOD = "report.likelihood"
PAPER = (
    Column("NLL, paper's kind", f"{_LIKELIHOOD}.published.nats", 2),
    Column("KL(z_enc)", f"{_LIKELIHOOD}.kl_code", 2),
    Column("PPL, paper's kind", f"{_LIKELIHOOD}.published.perplexity", 2, logarithm=True),
)
OURS = (
    Column("-ELBO (nats)", f"{_LIKELIHOOD}.elbo.nats", 2),
    Column("PPL (ELBO)", f"{_LIKELIHOOD}.elbo.perplexity", 2, logarithm=True),
    Column("PPL (ELBO), sentences of IW", f"{_LIKELIHOOD}.importance_weighted.elbo_perplexity", 2, logarithm=True),
    Column("PPL (IW)", f"{_LIKELIHOOD}.importance_weighted.perplexity", 2, logarithm=True),
    Column("reconstruction (nats)", f"{_LIKELIHOOD}.reconstruction", 2),
    Column("KL of z_t (nats)", f"{_LIKELIHOOD}.kl_steps", 2),
)
COLUMNS = (
    *PAPER,
    *OURS,
    Column("active units", "report.code.active_units", 1, differs=False),
    Column("I(x; z_enc) (nats)", "report.code.mutual_information", 3),
    Column("other z_enc (nats)", "report.controls.shuffled.nats", 3, differs=False),
    Column("other z_enc, standard error", "report.controls.shuffled.standard_error", 3, differs=False),
    Column("no z_enc (nats)", "report.controls.zero.nats", 3, differs=False),
    Column("no z_enc, standard error", "report.controls.zero.standard_error", 3, differs=False),
    Column("s/step", "step_seconds", differs=False),
    Column("parameters (M)", "parameters.generative", 3, 1e-6, differs=False),
    Column("inference (M)", "parameters.inference", 3, 1e-6, differs=False),
)


def paper(comparison):
    """Return the columns of Tables 1 and 2 of the paper beside bounds."""
    columns, title = (*PAPER, *OURS), "The columns of Tables 1 and 2 of the paper, NLL, KL and PPL, and bounds"
    titles = {name: title_from(name, lambda model: MODELS[model].title) for name in comparison.records}
    return [titled(title, main_table(columns, comparison.records, first_of=lambda name: (titles[name],)))]
