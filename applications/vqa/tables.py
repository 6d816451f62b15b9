"""Define the columns of result tables, and lay out the tables of Deng et al. 2018 and Fan et al. 2020."""

from applications.common.papers import with_paper
from applications.common.tables import Column, spread, title_from
from applications.vqa.model import MODELS
from applications.vqa.questions import TYPES


def last_kind(record, noisy=False):
    """Return the uncertainty metrics of the last kind of noise in a record. The order is dropout, attention, both."""
    report = record["report"].get("noisy", {}) if noisy else record["report"]
    kinds = report.get("uncertainty") or {}
    return kinds.get("both") or kinds.get("attention") or kinds.get("dropout") or {}


def pavpu(kind="all", noisy=False):
    """Return a function for `Column` that reads the PAvPU of one question type from a record."""
    return lambda record: last_kind(record, noisy).get("pavpu", {}).get(kind)


NLL = Column("NLL (nats)", "report.nll")
ACCURACY = Column("accuracy (%)", "report.accuracy.all", 2, 100)
ENTROPY = Column("entropy of attention (nats)", "report.entropy")
COLUMNS = (
    NLL,
    ACCURACY,
    *(Column(f"{name} (%)", f"report.accuracy.{name}", 2, 100) for name in TYPES),
    ENTROPY,
    Column("pointing (%)", "report.pointing", 1, 100),
    Column("chance (%)", "report.pointing_chance", 1, 100, differs=False),
    Column("questions of PAvPU", lambda record: last_kind(record).get("num_questions"), 0, differs=False),
    Column("PAvPU (%)", pavpu(), 2, 100),
    Column("ECE", lambda record: last_kind(record).get("ece")),
    Column("MI (nats)", lambda record: last_kind(record).get("mutual_information"), 4),
    Column("noisy NLL (nats)", "report.noisy.nll"),
    Column("noisy accuracy (%)", "report.noisy.accuracy.all", 2, 100),
    Column("noisy PAvPU (%)", pavpu(noisy=True), 2, 100),
    Column("sd of weights", lambda record: spread(record["report"].get("weights_sd")), differs=False),
    Column("s/step", "step_seconds", differs=False),
    Column("parameters (M)", "parameters.generative", 3, 1e-6, differs=False),
    Column("parameters of q (M)", "parameters.inference", 3, 1e-6, differs=False),
)


def select_architecture(comparison, architecture):
    """Return the records of the models with this architecture, and the titles of these models in the paper."""
    names = [run.name for run in comparison.planned if run.options.architecture == architecture]
    records = {name: record for name, record in comparison.records.items() if name in names}
    return records, {name: title_from(name, lambda model: MODELS[model].title) for name in records}


def deng(comparison):
    """Return Tables 1 and 3 (right half) of Deng et al. 2018, with our results for updown."""
    records, titles = select_architecture(comparison, "updown")
    if not records:
        return []
    kinds = {name: MODELS[comparison.models[name]] for name in records}
    figures = with_paper(
        "Table 1 of Deng et al. 2018, VQA",
        "deng_1_vqa",
        (NLL, Column("Eval (%)", ACCURACY.of, 2, 100)),
        records,
        first=("model", "objective", "E"),
        first_of=lambda name: (titles[name], kinds[name].value, kinds[name].expectation),
    )
    entropies = with_paper(
        "Table 3 of Deng et al. 2018, right",
        "deng_3_vqa",
        (Column("entropy of p (nats)", ENTROPY.of),),
        records,
        first=("model", "E"),
        first_of=lambda name: (titles[name], kinds[name].expectation),
    )
    return [figures, entropies]


def fan(comparison):
    """Return Tables 2 and 7 of Fan et al. 2020, with our results for mcan.

    The tables contain accuracy and PAvPU, on original and on noisy features.
    """
    records, titles = select_architecture(comparison, "mcan")
    if not records:
        return []
    parts = []
    for title, paper, accuracy_types, uncertainty_types in (
        ("Table 2", "fan_2", ("all",), ("all",)),
        ("Table 7, accuracy", "fan_7_accuracy", ("all", *TYPES), ()),
        ("Table 7, uncertainty", "fan_7_uncertainty", (), ("all", *TYPES)),
    ):
        columns = []
        for noisy, kind, path in ((False, "original", "report.accuracy"), (True, "noisy", "report.noisy.accuracy")):
            columns += [Column(f"accuracy {kind}, {name} (%)", f"{path}.{name}", 2, 100) for name in accuracy_types]
            columns += [Column(f"PAvPU {kind}, {name} (%)", pavpu(name, noisy), 2, 100) for name in uncertainty_types]
        title = f"{title} of Fan et al. 2020"
        parts.append(with_paper(title, paper, columns, records, first_of=lambda name: (titles[name],)))
    return parts
