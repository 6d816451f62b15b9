"""Columns of the tables, and the papers' layouts."""

from applications.common.tables import Column, main_table, spread, title_from, titled
from applications.vqa.evaluation import TYPES
from applications.vqa.options import MODELS


def last_kind(record, noisy=False):
    """Return the uncertainty figures under all that the model draws: dropout and attention, or the one that it has."""
    report = record["report"].get("noisy", {}) if noisy else record["report"]
    found = report.get("uncertainty") or {}
    return found.get("both") or found.get("attention") or found.get("dropout") or {}


def deviation(record):
    """Return the standard deviation of the attention weights, in words where there is next to none."""
    return spread(record["report"].get("weights_sd"))


def pavpu(kind="all", noisy=False):
    return lambda record: last_kind(record, noisy).get("pavpu", {}).get(kind)


def pavpu_under(name):
    """Return the PAvPU under draws of dropout or the attention alone, where a model has both."""

    def found(record):
        kinds = record["report"]["uncertainty"]
        return kinds[name]["pavpu"]["all"] if "both" in kinds else None

    return found


def conditions(record):
    """Return what the uncertainty metrics were computed under, in words; empty without any."""
    kinds, found = record["report"]["uncertainty"], last_kind(record)
    if not found:
        return ""
    of = "dropout and attention" if "both" in kinds else " and ".join(kinds)
    drawn = f"{found['num_draws']} draws of {of} on {found['num_questions']} questions"
    return f"{drawn}, certain at p < {found['significance']:g}"


NLL = Column("NLL (nats)", "report.nll")
ACCURACY = Column("accuracy (%)", "report.accuracy.all", 2, 100)
ENTROPY = Column("entropy of attention (nats)", "report.entropy")
COLUMNS = (
    NLL,
    ACCURACY,
    *(Column(f"{name} (%)", f"report.accuracy.{name}", 2, 100) for name in TYPES),
    Column("10 choose 9 (%)", "report.accuracy_of_others.all", 2, 100),
    ENTROPY,
    Column("pointing (%)", "report.pointing", 1, 100),
    Column("chance (%)", "report.pointing_chance", 1, 100, differs=False),
    Column("questions of PAvPU", lambda record: last_kind(record).get("num_questions"), 0, differs=False),
    Column("PAvPU (%)", pavpu(), 2, 100),
    Column("PAvPU, dropout alone (%)", pavpu_under("dropout"), 2, 100),
    Column("PAvPU, attention alone (%)", pavpu_under("attention"), 2, 100),
    Column("ECE", lambda record: last_kind(record).get("ece")),
    Column("MI (nats)", lambda record: last_kind(record).get("mutual_information"), 4),
    Column("noisy NLL (nats)", "report.noisy.nll"),
    Column("noisy accuracy (%)", "report.noisy.accuracy.all", 2, 100),
    Column("noisy PAvPU (%)", pavpu(noisy=True), 2, 100),
    Column("sd of weights", deviation, differs=False),
    Column(
        "gradient of likelihood", lambda record: f"{record['report']['gradients']['likelihood']:.1e}", differs=False
    ),
    Column("gradient of KL", lambda record: f"{record['report']['gradients']['kl']:.1e}", differs=False),
    Column("s/step", "step_seconds", differs=False),
    Column("parameters (M)", "parameters.generative", 3, 1e-6, differs=False),
    Column("inference (M)", "parameters.inference", 3, 1e-6, differs=False),
)


def of_architecture(comparison, architecture):
    """Return the records of the models of one network: a layout compares no others."""
    names = {run.name for run in comparison.planned if run.options.architecture == architecture}
    return {name: found for name, found in comparison.records.items() if name in names}


def deng(comparison):
    """Return Table 1, and the right half of Table 3, of Deng et al. 2018, of the models of the architecture updown."""
    records = of_architecture(comparison, "updown")
    if not records:
        return []
    kinds = {name: MODELS[comparison.models[name]] for name in records}
    text = main_table(
        (NLL, Column("Eval (%)", ACCURACY.of, 2, 100)),
        records,
        ("model", "objective", "E"),
        lambda name: (_title(name), kinds[name].value, kinds[name].expectation),
    )
    heads_of = lambda name: (_title(name), kinds[name].expectation)  # noqa: E731
    entropies = main_table((Column("entropy of p (nats)", ENTROPY.of),), records, ("model", "E"), heads_of)
    return [titled("Table 1 of Deng et al. 2018, VQA", text), titled("Table 3 of Deng et al. 2018, right", entropies)]


def fan(comparison):
    """Return Tables 2 and 7 of Fan et al. 2020, of the models of the architecture mcan: accuracy and PAvPU, on the data
    as they are and with noise."""
    records, parts = of_architecture(comparison, "mcan"), []
    if not records:
        return []
    first_of = lambda name: (_title(name),)  # noqa: E731
    draws = last_kind(next(iter(records.values()))[0])
    stated = "no draws"
    if draws:
        stated = f"{draws['num_draws']} draws on {draws['num_questions']} questions, p < {draws['significance']:g}"
    for title, of_type, of_uncertainty in (
        ("Table 2", ("all",), ("all",)),
        ("Table 7, accuracy", ("all", *TYPES), ()),
        ("Table 7, uncertainty", (), ("all", *TYPES)),
    ):
        columns = []
        for noisy in (False, True):
            kind, place = ("noisy", "report.noisy.accuracy") if noisy else ("original", "report.accuracy")
            columns += [Column(f"accuracy {kind}, {name} (%)", f"{place}.{name}", 2, 100) for name in of_type]
            columns += [Column(f"PAvPU {kind}, {name} (%)", pavpu(name, noisy), 2, 100) for name in of_uncertainty]
        text = main_table(tuple(columns), records, first_of=first_of)
        parts.append(titled(f"{title} of Fan et al. 2020; {stated}", text))
    return parts


def _title(name):
    """Return the paper's name of a model, with the options of its own."""
    return title_from(name, lambda model: MODELS[model].title)
