"""Writes and reads results files: JSON with the command, options and metrics of a comparison."""

import dataclasses
import json
import pathlib
import re
import shlex

from applications.common.errors import InputError
from applications.common.program import config_of
from applications.common.runs import write_text_atomically

_PLACES = ("out", "jobs", "results", "train_values")
_PER_RUN = ("model", "seed", "out", "start_from", "export", "tensorboard")
_STORED = ("epochs", "steps", "step_seconds", "train_seconds", "parameters", "report")
_METADATA = ("options", "data", "data_digest", "split")
_MAX_LENGTH = 100
# Options of `compare` that select runs.
_RUNS = re.compile(r" --(models|seeds|first-seed) .*?(?= --|$)")


def write_results(comparison, path):
    """Write the results of a comparison as JSON. Keep other runs in an existing file."""
    application, previous, first = comparison.application, comparison.results_before, comparison.planned[0]
    default, first = _plain(config_of(application.program.default)), comparison.read(first, "metrics.json")
    if previous is not None and previous["data"] != _plain(first["data"]):
        raise InputError(f"--results: {path} contains results for different data; choose another file.")
    # {(name, seed): (options, metrics)}. Defaults replace options that old records lack.
    records, environments = {}, []
    if previous is not None:
        environments.append(previous["environment"])
        for run in (run for seeds in previous["runs"].values() for run in seeds):
            records[run["name"], run["seed"]] = _plain(default | previous["options"] | run["options"]), run
    for run in comparison.planned:
        trained = filter(None, (run.options, run.start))
        record, *starts = (comparison.read(dataclasses.replace(run, options=x), "metrics.json") for x in trained)
        figures = {"name": run.name, "seed": run.seed, "options": {}}
        figures |= {name: record[name] for name in _STORED if name in record}
        figures["cpu_seconds"] = sum(x.get("cpu_seconds", 0.0) for x in (record, *starts))
        reports = comparison.reports.get(run.options.run.out, {})
        figures["reports"] = {name: {x: row[x] for x in row if x not in _METADATA} for name, row in reports.items()}
        records[run.name, run.seed] = _plain(default | record["options"]), figures
        environments.append(record["environment"])
    (options, _), *rest = records.values()
    shared = [x for x in default if x not in _PER_RUN and all(row[x] == options[x] for row, _ in rest)]
    names, seeds = zip(*records, strict=True)
    all_seeds = {"first_seed": min(seeds), "seeds": max(seeds) - min(seeds) + 1}
    head = {
        "command": _command(application.program, comparison.options, dict.fromkeys(names), **all_seeds),
        "environment": _joined(environments),
        "options": {x: options[x] for x in shared if options[x] != default[x]},
        "data": first["data"],
        "heading": application.heading(first),
    }
    rows = [
        figures | {"options": {x: value for x, value in options.items() if x not in (*shared, *_PER_RUN)}}
        for options, figures in records.values()
    ]
    lines = [f"{json.dumps(name)}: {json.dumps(_plain(value), ensure_ascii=False)}," for name, value in head.items()]
    runs = ",\n".join(json.dumps(_plain(row), ensure_ascii=False) for row in rows)
    write_text_atomically(path, "{\n" + "\n".join(lines) + f'\n"runs": [\n{runs}\n]\n' + "}\n")


def results_before(program, options):
    """Return the content of the file `--results`, or `None` if the file does not exist.
    Raise `InputError` if another command wrote the file: one table must not mix the runs of two commands."""
    path = pathlib.Path(options.results)
    if not path.exists():
        return None
    try:
        results = read_results(path)
        command = _RUNS.sub("", results["command"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"--results: {path} is not a results file; name another file.") from error
    if command != (expected := _RUNS.sub("", _command(program, options, options.models))):
        raise InputError(f"--results: {path} was written by {command!r}, not by {expected!r}; name another file.")
    return results


def _joined(environments):
    """Merge environment records. Distinct values are joined with commas."""
    versions = {
        name: ", ".join(dict.fromkeys(str(environment[name]) for environment in environments))
        for name in environments[0]
        if name not in ("commit", "commits", "uncommitted_changes")
    }
    commits = sorted({commit for each in environments for commit in each.get("commits", [str(each.get("commit"))])})
    changes = any(environment["uncommitted_changes"] for environment in environments)
    return versions | {"commits": commits, "uncommitted_changes": changes}


def read_results(path):
    """Return the content of a results file. "runs" maps names of runs to lists of records."""
    results, runs = json.loads(path.read_text(encoding="utf-8")), {}
    for run in results["runs"]:
        runs.setdefault(run["name"], []).append(run)
    return results | {"runs": runs}


def _command(program, options, models, **seeds):
    """Return the `compare` command for `models`, without output paths. `seeds` overrides options."""
    words = ["python", "-m", program.name, "compare", "--models", *models]
    for field in dataclasses.fields(options):
        value = seeds.get(field.name, getattr(options, field.name))
        if field.name not in (*_PLACES, "models") and value != field.default:
            words += _words(field.name, value)
    for name, value in sorted(options.train_values.items()):
        words += _words(name, value)
    return shlex.join(words)


def _words(name, value):
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    values = value if isinstance(value, tuple | list) else [value]
    return [f"--{flag}", *("none" if each is None else str(each) for each in values)]


def _plain(value):
    """Return `value` as JSON values, with rounded floats and without long lists."""
    return json.loads(
        json.dumps(value),
        object_hook=lambda d: {name: x for name, x in d.items() if not isinstance(x, list) or len(x) <= _MAX_LENGTH},
        parse_float=lambda digits: float(f"{float(digits):.6g}"),
    )
