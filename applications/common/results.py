"""The small file that keeps a comparison: its command, its options and the figures of every run."""

import dataclasses
import json
import numbers
import shlex

from applications.common.program import config_of
from applications.common.runs import write_text_atomically

# Options of `compare` that say where it runs, not what.
_PLACES = ("out", "jobs", "results", "of_train")
# Options of a run that differ from run to run, or that no figure depends on.
_OF_A_RUN = ("model", "seed", "out", "start_from", "export", "tensorboard")
_STORED = ("epochs", "steps", "step_seconds", "train_seconds", "parameters", "report")
# Entries of a report that are not figures.
_BESIDE = ("options", "data", "data_digest", "split")
_LONGEST = 100


def write_results(comparison, path):
    """Write the results of a trained comparison as JSON, a line for each run."""
    application = comparison.application
    default, first = config_of(application.program.default), comparison.read(comparison.planned[0], "metrics.json")
    rows, all_options, environments = [], [], []
    for run in comparison.planned:
        # The CPU time includes the run that this run starts from.
        trained = filter(None, (run.options, run.start))
        record, *starts = (comparison.read(dataclasses.replace(run, options=x), "metrics.json") for x in trained)
        figures = {name: record[name] for name in _STORED if name in record}
        figures["cpu_seconds"] = sum(x.get("cpu_seconds", 0.0) for x in (record, *starts))
        reports = comparison.reports.get(run.options.run.out, {})
        figures["reports"] = {name: {x: of[x] for x in of if x not in _BESIDE} for name, of in reports.items()}
        rows.append({"name": run.name, "seed": run.seed, "options": {}} | figures)
        # Old records lack new options.
        all_options.append(_plain(default | record["options"]))
        environments.append(record["environment"])
    shared = [x for x in default if x not in _OF_A_RUN and all(of[x] == all_options[0][x] for of in all_options)]
    head = {
        "command": _command(application.program, comparison.options),
        "environment": _joined(environments),
        "options": {x: all_options[0][x] for x in shared if all_options[0][x] != _plain(default)[x]},
        "data": first["data"],
        "heading": application.heading(first),
    }
    for row, options in zip(rows, all_options, strict=True):
        row["options"] = {x: value for x, value in options.items() if x not in (*shared, *_OF_A_RUN)}
    lines = [f"{json.dumps(name)}: {json.dumps(_plain(value), ensure_ascii=False)}," for name, value in head.items()]
    runs = ",\n".join(json.dumps(_plain(row), ensure_ascii=False) for row in rows)
    write_text_atomically(path, "{\n" + "\n".join(lines) + f'\n"runs": [\n{runs}\n]\n' + "}\n")


def _joined(environments):
    """Return the versions of all environments, side by side where they differ, and all commits."""
    joined = {name: sorted({str(each[name]) for each in environments}) for name in environments[0]}
    changes = joined.pop("uncommitted_changes") != ["False"]
    return {"commits": joined.pop("commit"), "uncommitted_changes": changes} | {
        name: ", ".join(versions) for name, versions in joined.items()
    }


def read_results(path):
    """Return the content of a file of results, its "runs" a dictionary from names to the records of their seeds."""
    results, runs = json.loads(path.read_text(encoding="utf-8")), {}
    for run in results["runs"]:
        runs.setdefault(run["name"], []).append(run)
    return results | {"runs": runs}


def _command(program, options):
    """Return the command of a comparison, without the places that it writes to."""
    words = ["python", "-m", program.name, "compare", "--models", *options.models]
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.name not in (*_PLACES, "models") and value != field.default:
            words += _words(field.name, value)
    for name, value in sorted(options.of_train.items()):
        words += _words(name, value)
    return shlex.join(words)


def _words(name, value):
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    values = value if isinstance(value, tuple | list) else [value]
    return [f"--{flag}", *("none" if each is None else str(each) for each in values)]


def _plain(value):
    """Return a value with six digits of its numbers, and without lists of over 100 entries."""
    if isinstance(value, dict):
        return {name: _plain(x) for name, x in value.items() if not (isinstance(x, list) and len(x) > _LONGEST)}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        return float(f"{value:.6g}")
    return value
