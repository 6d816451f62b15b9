"""Implements the commands that load a trained run: `evaluate`, `generate` (or `predict`) and `export`."""

import json
import pathlib

from applications.common.errors import InputError
from applications.common.option_values import values_of
from applications.common.page import Page, write_page
from applications.common.reporting import counts_of
from applications.common.runs import digest_of, write_json, write_lines
from applications.common.serving import save_module
from applications.common.tables import figures_of
from applications.common.training import load_run
from keras_vattn.plots.chart import require_altair


def evaluate(application, options):
    """Evaluate a run on a split of its data or on other files. Write and print the metrics."""
    require_altair()
    run = load_run(application, options.run)
    part, split = application.read_other(run.options, options), None
    if part is None:
        data, split = application.read(run.options), options.split
        run.folder.require_data(digest_of(data))
        if split not in data:
            raise InputError(f"--split: this run has no {split} data.")
        part = data[split]
    name = options.name or ("evaluation_files" if split is None else f"evaluation_{split}")
    path = pathlib.Path(options.out or run.folder.path) / f"{name}.json"
    digest = digest_of(part)
    _require_same(path, split, digest)
    part = application.encode(run.options, run.codec, part)
    figures, outputs = application.evaluate(run, part, options)
    record = {"split": split, "data_digest": digest, "data": getattr(part, "report", {}), "report": figures}
    named, table = split or "other", figures_of(application.columns, record)
    heading = application.heading(record | {"split": named})
    if record["data"]:
        print(counts_of(named, record["data"]))
    summary = application.summary(figures)
    print(*summary, *([""] if summary else []), heading, "", table, sep="\n", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    for kind, lines in application.files(outputs).items():
        write_lines(path.with_name(f"{name}_{kind}.txt"), lines)
    write_json(path, record | {"options": options})
    page = Page(
        title=f"{application.program.name.rpartition('.')[2]}: {run.options.model}, {named} data",
        heading=heading,
        tables=table,
        summary=summary,
        shown=application.shown(run, part, outputs),
        details={"Options": values_of(options)},
    )
    write_page(path.with_suffix(".html"), page)
    print(f"written: {path}")


def _require_same(path, split, digest):
    """Raise `InputError` if `path` exists and is not a report on the same data."""
    if path.stem in ("metrics", "report"):
        raise InputError(f"--name: this name is reserved for another file of the run. Received: {path.stem!r}")
    if not path.exists():
        return
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        same = (record["split"], record["data_digest"]) == (split, digest)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"--name: {path} is not a report; choose another name.") from error
    if not same:
        raise InputError(f"--name: {path} is a report on different data; choose another name.")


def generate(application, options):
    """Print the output of the model for each input, one per line."""
    run = load_run(application, options.run)
    for line in application.generate(run, options):
        print(line)


def export(application, options):
    """Write the model of a run as a SavedModel. Print its path and the names of its endpoints."""
    path = pathlib.Path(options.out or pathlib.Path(options.run, "saved_model"))
    run = load_run(application, options.run)
    endpoints = application.endpoints(run, options)
    if endpoints is None:
        raise InputError(f"--run: {application.program.name} cannot export the model of {options.run}.")
    names = save_module(*endpoints, path)
    print(f"written: {path}, endpoints {', '.join(names)}")
