"""Columns of the tables."""

from applications.common.tables import Column

_TASK, _DRAWS = "report.task", "report.draws"
COLUMNS = (
    Column("Matthews", f"{_TASK}.matthews"),
    Column("accuracy (%)", f"{_TASK}.accuracy", 1, 100.0),
    Column("Pearson", f"{_TASK}.pearson"),
    Column("Spearman", f"{_TASK}.spearman"),
    Column("RMSE", f"{_TASK}.rmse"),
    Column("exact match (%)", f"{_TASK}.exact", 1, 100.0),
    Column("F1 (%)", f"{_TASK}.f1", 1, 100.0),
    Column("NLL (nats)", "report.nll"),
    Column("ECE", "report.ece"),
    Column("Brier", "report.brier"),
    Column("Matthews, draws", f"{_DRAWS}.task.matthews"),
    Column("accuracy, draws (%)", f"{_DRAWS}.task.accuracy", 1, 100.0),
    Column("Pearson, draws", f"{_DRAWS}.task.pearson"),
    Column("NLL, draws", f"{_DRAWS}.nll"),
    Column("ECE, draws", f"{_DRAWS}.ece"),
    Column("PAvPU, draws", f"{_DRAWS}.pavpu"),
    Column("sd of a score", f"{_DRAWS}.sd"),
    Column("gradient of the likelihood", "report.gradients.likelihood", differs=False),
    Column("gradient of the KL", lambda record: f"{record['report']['gradients']['kl']:.1e}", differs=False),
    Column("s/step", "step_seconds", differs=False),
    Column("steps", "steps", 0, differs=False),
)
