"""Writes the report of a run: a table of metrics, notes, a web page, and the commands to run next."""

import shlex

from applications.common.page import Page, pictures_in, write_page
from applications.common.runs import write_text_atomically
from applications.common.tables import figures_of
from applications.common.training_curves import value_of

COLLAPSED_NATS = 0.1


def write_report(run, record, shown, lines, has_endpoints):
    """Write report.txt and report.html of a `TrainingRun`.
    `record`: content of metrics.json. `lines`: result of `Application.report`. `has_endpoints`: whether the command
    `export` works for this run."""
    application, folder = run.application, run.folder
    summary, heading = application.summary(record["report"]), application.heading(record)
    figures, name = figures_of(application.columns, record), f"{record['model']}, seed {record['seed']}"
    notes = [trained(record), *collapsed_posteriors(record["history"])]
    commands = next_steps(run, record, has_endpoints)
    text = [*(summary and [*summary, ""]), f"{name} (one seed, no claim); {heading}", "", figures, "", *notes, ""]
    write_text_atomically(folder.file("report.txt"), "\n".join([*text, *lines, *commands]) + "\n")
    page = Page(
        title=f"{application.program.name.rpartition('.')[2]}: {name}",
        heading=f"{heading}; one seed, no claim",
        tables="\n\n".join([figures, *notes]),
        summary=summary,
        pictures=pictures_in(folder.path),
        shown=shown,
        details={"Options": record["options"], "Environment": record["environment"]},
    )
    write_page(folder.file("report.html"), page)


def trained(record):
    """Return a line on the epochs, steps and time of the training, and the number of parameters."""
    best_epoch = "" if record["epoch"] == record["epochs"] else f", weights of epoch {record['epoch']}"
    options = record["options"]
    start = f" (without the epochs of {options['start_from']})" if options["start_from"] else ""
    parameters = ", ".join(f"{count:,} {name}" for name, count in record["parameters"].items())
    summary = f"trained {record['epochs']} epochs, {record['steps']} steps, in {record['train_seconds']:.0f} s{start}"
    return f"{summary}{best_epoch}; parameters: {parameters}"


def counts_of(name, report):
    """Return a line that counts the used and the skipped examples of the split `name`."""
    counts = [f"{value} {key.replace('num_', '').replace('_', ' ')}" for key, value in report.items() if value]
    return f"{name}: {', '.join(counts)}"


def collapsed_posteriors(row):
    """Return a line for each latent variable whose validation KL is nearly 0.
    If a KL has a positive minimum ("floor"), the KL minus the floor is used. `row` is a row of history.csv."""
    lines = []
    for name in row:
        value = value_of(row, name) if name.startswith("val_") and name.endswith("_kl") else None
        if value is None or abs(value) >= COLLAPSED_NATS:
            continue
        above, meaning = "", "the posterior hardly differs from the prior"
        if f"{name}_above_floor" in row:
            above = " above its floor"
            meaning = "the posterior is nearly as close to the prior as possible, although its samples still vary"
        lines.append(f"{name[4:-3]}: KL {value:.3f} nats{above} on validation: {meaning}")
    return lines


def next_steps(run, record, has_endpoints):
    """Return lines that suggest commands to run after training."""
    program, path, steps = run.application.program, run.folder.path, []
    start, run_option = f"python -m {program.name}", f"--run {shlex.quote(str(path))}"
    example = run.application.example_of(run.data[record["split"]])
    if example is not None:
        echo = f"echo {shlex.quote(example)} | " if example else ""
        steps.append(f"{echo}{start} {'predict' if 'predict' in program.commands else 'generate'} {run_option}")
    steps.append(f"{start} evaluate {run_option} --split {record['split']}")
    if "export" in program.commands and has_endpoints:
        comment = f"  # already in {path / 'saved_model'}" if record["options"]["export"] else ""
        steps.append(f"{start} export {run_option}{comment}")
    return [f"written: {path}. Next:", *(f"  {step}" for step in steps)]
