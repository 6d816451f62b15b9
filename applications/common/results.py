"""The small file that keeps a comparison: its command, its options and the figures of every run."""

import dataclasses
import json
import numbers
import shlex

from applications.common.errors import InputError
from applications.common.program import config_of
from applications.common.runs import write_text_atomically

# Options of `compare` that say where it runs, not what.
_PLACES = ("out", "jobs", "results", "of_train")
# Options of a run that differ from run to run, or that no figure depends on.
_OF_A_RUN = ("model", "seed", "out", "start_from", "continue_training", "stop_after", "export", "tensorboard")
_KEPT = ("epochs", "steps", "step_seconds", "train_seconds", "parameters")
# Of a report beside its figures.
_BESIDE = ("options", "data", "data_digest", "split")
_LONGEST = 100


def write_results(comparison, path):
    """Write the results of a trained comparison as JSON, a line for each run.

    Args:
        comparison: `Comparison`, after its layouts, so that what they evaluate is there.
        path: File.
    """
    application, default = comparison.application, config_of(comparison.application.program.default)
    first = comparison.read(comparison.planned[0], "metrics.json")
    # An option that the record of a run lacks has its default.
    options = [default | record["options"] for of in comparison.records.values() for record in of]
    shared = {
        name: options[0][name]
        for name in default.keys() - set(_OF_A_RUN)
        if all(_plain(each[name]) == _plain(options[0][name]) for each in options)
    }
    runs, environments = [], []
    for run in comparison.planned:
        # Of the run, and of the one that it starts from.
        trained = filter(None, (run.options, run.start))
        counted = [comparison.read(dataclasses.replace(run, options=each), "metrics.json") for each in trained]
        record = counted[0]
        own = {x: value for x, value in record["options"].items() if x not in shared and x not in _OF_A_RUN}
        kept = {name: record[name] for name in _KEPT if name in record} | {"report": record["report"]}
        reports = comparison.reports.get(run.options.run.out, {})
        kept["cpu_seconds"] = sum(each.get("cpu_seconds", 0.0) for each in counted)
        kept["reports"] = {name: {x: each[x] for x in each if x not in _BESIDE} for name, each in reports.items()}
        runs.append({"name": run.name, "seed": run.seed, "options": own} | kept)
        environments.append(record["environment"])
    commits = sorted({str(environment.pop("commit")) for environment in environments})
    changes = any(environment["uncommitted_changes"] for environment in environments)
    head = {
        "command": _command(application.program, comparison.options),
        "environment": environments[0] | {"commits": commits, "uncommitted_changes": changes},
        "options": {name: shared[name] for name in default if name in shared and shared[name] != _plain(default[name])},
        "data": first["data"],
        "heading": application.heading(first),
    }
    lines = [f"{json.dumps(name)}: {json.dumps(_plain(value), ensure_ascii=False)}," for name, value in head.items()]
    rows = ",\n".join(json.dumps(_plain(run), ensure_ascii=False) for run in runs)
    write_text_atomically(path, "{\n" + "\n".join(lines) + f'\n"runs": [\n{rows}\n]\n' + "}\n")


def refuse_fewer(planned, path):
    """Raise `InputError` if the file is there and has runs that would be lost: those that are not planned."""
    if not path.exists():
        return
    try:
        runs = {(name, run["seed"]) for name, of in read_results(path)["runs"].items() for run in of}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"--results: {path} is no file of results; name another.") from error
    lost = sorted(runs - {(run.name, run.seed) for run in planned})
    if lost:
        listed = ", ".join(f"{name} of seed {seed}" for name, seed in lost[:3])
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        raise InputError(f"--results: {path} has runs that are not in this comparison ({listed}{more}); name another.")


def read_results(path):
    """Return the content of a file of results, its "runs" a dictionary from names to the records of their seeds."""
    results, runs = json.loads(path.read_text(encoding="utf-8")), {}
    for run in results["runs"]:
        runs.setdefault(run["name"], []).append(run)
    return results | {"runs": runs}


def _command(program, options):
    """Return the command of a comparison, without the places that it writes to."""
    words = ["python", "-m", program.name, "compare"]
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.name not in _PLACES and (field.name == "models" or value != field.default):
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
    """Return a value with six digits of its numbers; lists that are long, the curves of single words or inputs, go."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if not _is_long(each)}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        return float(f"{value:.6g}")
    return value


def _is_long(value):
    return isinstance(value, list) and len(value) > _LONGEST
