"""Columns of the tables, and the layout of Table 1 of Fan et al. 2020."""

import numpy as np

from applications.common.significance import holm, mean_interval, paired_interval, paired_p
from applications.common.tables import Column, interval_text, spread, table, title_from, titled
from applications.graphs.options import MODELS, PAPER


def deviation(record):
    """Return the standard deviation of the attention weights over draws, the larger one of both layers."""
    layers = record["report"]["attention"]
    return layers and spread(max(layer["weights_sd"] for layer in layers.values()))


_OF_DRAWS = "report.uncertainty"
COLUMNS = (
    Column("accuracy (%)", "report.accuracy", 2, 100.0),
    Column("NLL, validation", "history.val_nll"),
    Column("NLL (nats)", "report.nll"),
    Column("ECE", "report.ece"),
    Column("accuracy, attention drawn (%)", f"{_OF_DRAWS}.attention.accuracy", 2, 100.0),
    Column("NLL, attention drawn", f"{_OF_DRAWS}.attention.nll"),
    Column("NLL, dropout", f"{_OF_DRAWS}.dropout.nll"),
    Column("ECE, dropout", f"{_OF_DRAWS}.dropout.ece"),
    Column("PAvPU, dropout", f"{_OF_DRAWS}.dropout.pavpu"),
    Column("NLL, both", f"{_OF_DRAWS}.both.nll"),
    Column("ECE, both", f"{_OF_DRAWS}.both.ece"),
    Column("PAvPU, both", f"{_OF_DRAWS}.both.pavpu"),
    Column("sd of the weights", deviation, differs=False),
    Column("gradient of the likelihood", "report.gradients.likelihood", differs=False),
    Column("gradient of the KL", lambda record: f"{record['report']['gradients']['kl']:.1e}", differs=False),
    Column("epochs", "epochs", 0, differs=False),
    Column("s", "train_seconds", 1, differs=False),
)


def fan(comparison):
    """Return Table 1 of Fan et al. 2020: the paper's accuracy, ours, and paired tests against the baseline."""
    values = {name: [100.0 * record["report"]["accuracy"] for record in of] for name, of in comparison.records.items()}
    baseline, options = comparison.options.baseline, {run.name: run.options for run in comparison.planned}
    others = [name for name in values if name != baseline] if baseline in values else []
    # One seed has no test.
    p_values = {name: paired_p(values[name], values[baseline]) for name in others}
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    rows = []
    for name, accuracies in values.items():
        paper = PAPER.get(options[name].alignment.published, {}).get(options[name].model)
        sd = f"{np.std(accuracies, ddof=1):.2f}" if len(accuracies) > 1 else "-"
        row = [title_from(name, lambda model: MODELS[model].title), f"{paper:.2f}" if paper else "-"]
        row += [interval_text(mean_interval(accuracies), 2), sd, "-", "-", "-"]
        if name in corrected:
            difference = interval_text(paired_interval(accuracies, values[baseline]), 2)
            row[-3:] = difference, *("-" if np.isnan(p) else f"{p:.3f}" for p in (p_values[name], corrected[name]))
        rows.append(row)
    heads = ("attention", "paper", "here", "sd", f"difference to {baseline}", "p, paired t", "p, Holm")
    return [titled("Table 1 of Fan et al. 2020: test accuracy (%)", table(heads, rows))]
