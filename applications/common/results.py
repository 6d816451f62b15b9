"""The small file that keeps a comparison: its command, its options and the figures of every run."""

import dataclasses
import json
import numbers
import pathlib
import shlex

from applications.common.errors import InputError
from applications.common.program import config_of
from applications.common.runs import write_text_atomically

# Options of `compare` that say where it runs, not what.
_PLACES = ("out", "jobs", "results", "of_train")
# Options of a run that differ from run to run, or that no figure depends on.
_OF_A_RUN = ("model", "seed", "out", "start_from", "export", "tensorboard")
_KEPT = ("epochs", "steps", "step_seconds", "train_seconds", "parameters")
# Of a report beside its figures.
_BESIDE = ("options", "data", "data_digest", "split")
_LONGEST = 100


def write_results(comparison, path):
    """Write the results of a trained comparison as JSON, a line for each run; the other runs of the file stay.

    Args:
        comparison: `Comparison`, after its layouts, so that what they evaluate is there.
        path: File.

    Raises:
        InputError: If the other runs of the file are of other data.
    """
    application, default = comparison.application, config_of(comparison.application.program.default)
    before = comparison.results_before
    first = comparison.read(comparison.planned[0], "metrics.json")
    # From the name and seed of a run to its options and the kept part of its record. Old records lack new options.
    kept, environments = {}, []
    if before is not None:
        if before["data"] != _plain(first["data"]):
            raise InputError(f"--results: the runs of {path} are of other data; name another file.")
        kept = {(run["name"], run["seed"]): (default | options, run) for options, run in _runs_of(before)}
        environments.append(before["environment"])
    for run in comparison.planned:
        # Of the run, and of the one that it starts from.
        trained = filter(None, (run.options, run.start))
        counted = [comparison.read(dataclasses.replace(run, options=each), "metrics.json") for each in trained]
        record = counted[0]
        of_run = {name: record[name] for name in _KEPT if name in record} | {"report": record["report"]}
        reports = comparison.reports.get(run.options.run.out, {})
        of_run["cpu_seconds"] = sum(each.get("cpu_seconds", 0.0) for each in counted)
        of_run["reports"] = {name: {x: each[x] for x in each if x not in _BESIDE} for name, each in reports.items()}
        kept[run.name, run.seed] = (default | record["options"], of_run)
        environments.append(record["environment"])
    options = [of_run for of_run, _ in kept.values()]
    shared = {
        name: options[0][name]
        for name in default.keys() - set(_OF_A_RUN)
        if all(_plain(each[name]) == _plain(options[0][name]) for each in options)
    }
    runs = []
    for (name, seed), (of_run, figures) in kept.items():
        own = {x: value for x, value in of_run.items() if x not in shared and x not in _OF_A_RUN}
        runs.append({"name": name, "seed": seed, "options": own} | {x: figures[x] for x in figures if x != "options"})
    models = list(dict.fromkeys(name for name, _ in kept))
    head = {
        "command": shlex.join(_command(application.program, comparison.options, models)),
        "environment": _joined(environments),
        "options": {name: shared[name] for name in default if name in shared and shared[name] != _plain(default[name])},
        "data": first["data"],
        "heading": application.heading(first),
    }
    lines = [f"{json.dumps(name)}: {json.dumps(_plain(value), ensure_ascii=False)}," for name, value in head.items()]
    rows = ",\n".join(json.dumps(_plain(run), ensure_ascii=False) for run in runs)
    write_text_atomically(path, "{\n" + "\n".join(lines) + f'\n"runs": [\n{rows}\n]\n' + "}\n")


def results_before(program, options, planned):
    """Return the file of results that a comparison adds its runs to, as `read_results` does; `None` if there is none.

    Raises:
        InputError: If the runs of the file are not of this comparison but for its models: they have no place in one
            table.
    """
    path = pathlib.Path(options.results)
    if not path.exists():
        return None
    try:
        results = read_results(path)
        others, runs = _without_models(shlex.split(results["command"])), list(_runs_of(results))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"--results: {path} is no file of results; name another.") from error
    if others != _without_models(_command(program, options, options.models)):
        raise InputError(f"--results: {path} is of another command ({results['command']}); name another file.")
    default = config_of(program.default)
    for run in planned:
        asked = _plain(json.loads(json.dumps(config_of(run.options))))
        for before, of_run in runs:
            before = _plain(default) | before
            own = {*_OF_A_RUN, *_named(run.name), *_named(of_run["name"])}
            differ = [name for name in asked if name not in own and asked[name] != before[name]]
            if differ:
                listed = ", ".join(f"{name} is {before[name]}, not {asked[name]}" for name in differ[:3])
                raise InputError(f"--results: {path} is of runs with other options ({listed}); name another file.")
    return results


def _runs_of(results):
    """Yield the options of each run that are not the defaults, and its record."""
    for of_model in results["runs"].values():
        for run in of_model:
            yield results["options"] | run["options"], run


def _named(name):
    """Return the options that the name of a model sets, MODEL:option=value,..."""
    return [item.partition("=")[0].strip().replace("-", "_") for item in name.partition(":")[2].split(",")]


def _joined(environments):
    """Return the versions of all environments, side by side where they differ, and all commits."""
    versions = {
        name: ", ".join(dict.fromkeys(str(environment[name]) for environment in environments))
        for name in environments[0]
        if name not in ("commit", "commits", "uncommitted_changes")
    }
    commits = sorted({commit for each in environments for commit in each.get("commits", [str(each.get("commit"))])})
    changes = any(environment["uncommitted_changes"] for environment in environments)
    return versions | {"commits": commits, "uncommitted_changes": changes}


def read_results(path):
    """Return the content of a file of results, its "runs" a dictionary from names to the records of their seeds."""
    results, runs = json.loads(path.read_text(encoding="utf-8")), {}
    for run in results["runs"]:
        runs.setdefault(run["name"], []).append(run)
    return results | {"runs": runs}


def _command(program, options, models):
    """Return the words of the command of a comparison of some models, without the places that it writes to."""
    words = ["python", "-m", program.name, "compare", "--models", *models]
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.name not in (*_PLACES, "models") and value != field.default:
            words += _words(field.name, value)
    for name, value in sorted(options.of_train.items()):
        words += _words(name, value)
    return words


def _without_models(words):
    """Return the words of a command without `--models` and the models, which stand before the other flags."""
    first = words.index("--models")
    last = next((place for place in range(first + 1, len(words)) if words[place].startswith("--")), len(words))
    return words[:first] + words[last:]


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
