"""Lists and checks the runs that `compare` trains. This module does not load TensorFlow."""

import dataclasses
import pathlib
import re
import typing

import yaml

from applications.common.errors import InputError
from applications.common.option_values import check, read_values, typed, with_values
from applications.common.program import config_of
from applications.common.runs import RunFolder

_MODEL = re.compile(r"(?P<model>[^@:]+)(@(?P<start>[^@:]+))?(:(?P<values>.+))?")


@dataclasses.dataclass(frozen=True)
class Planned:
    """One run of a comparison.

    Attributes:
        name: Entry of `--models`: MODEL[@START][:option=value,...].
        seed: Seed of the run.
        options: Options of `train` for the run.
        start: Options of `train` for the model START, which is trained first; `None` if the name has no START.
        is_member: Whether the run is used only as a member of an ensemble.
    """

    name: str
    seed: int
    options: typing.Any
    start: typing.Any = None
    is_member: bool = False


def plan(program, options):
    """Return the `Planned` runs of a comparison, grouped by model.
    Raise `InputError` if an option is invalid, or if a planned run's folder contains a run with different options."""
    default = with_values(program.default, {} if options.preset is None else program.preset_values(options.preset))
    if options.options is not None:
        values = read_values("--options", options.options, program.options)
        default = with_values(default, _require_of_all("--options", values))
    default = with_values(default, _require_of_all("compare", options.train_values))
    first, end = options.first_seed, options.first_seed + options.seeds
    # The baseline need not be in `--models`, so check its name here.
    _planned(program, options, default, options.baseline, first, "--baseline")
    planned = [_planned(program, options, default, name, seed) for name in options.models for seed in range(first, end)]
    for seed in range(end, first + options.seeds * getattr(options, "num_members", 0)):
        run = _planned(program, options, default, options.baseline, seed)
        planned.append(dataclasses.replace(run, is_member=True))
    if options.start_epochs is not None and not any(run.start for run in planned):
        raise InputError("--start-epochs: expected a model of the form MODEL@START in --models.")
    outs = {}
    for run in planned:
        other = outs.setdefault(run.options.run.out, run)
        if other is not run:
            raise InputError(f"--models: {other.name} and {run.name} would use the same folder, {run.options.run.out}.")
        for run_options in filter(None, (run.options, run.start)):
            if run_options.fit.strategy == "multi_worker":
                raise InputError("--strategy multi_worker: run `train` instead of `compare`, on all workers.")
            check(run_options)
            if pathlib.Path(run_options.run.out, "config.yaml").exists():
                # For MODEL@START, these options determine how long START trains, so they must not change.
                fixed = {"epochs", "max_steps"} if run.start else set()
                may_differ = set(program.changeable) - fixed
                RunFolder.check(run_options.run.out, config_of(run_options), True, may_differ, program.updated)
    return planned


def _require_of_all(place, values):
    """Return `values`; raise `InputError` if they contain an option that `compare` sets for each run."""
    per_run = [name for name in ("model", "seed", "out", "resume", "overwrite") if name in values]
    if per_run:
        raise InputError(f"{place}: `compare` sets {', '.join(per_run)} for each run; omit these options.")
    return values


def _planned(program, options, default, name, seed, option="--models"):
    match = _MODEL.fullmatch(name)
    if match is None:
        raise InputError(f"{option}: expected MODEL[@START][:option=value,...]. Received: {name}")
    values = {}
    for item in match["values"].split(",") if match["values"] else ():
        key, equals, text = item.partition("=")
        if not equals:
            raise InputError(f"{option}: {name}: expected option=value after the model name. Received: {item}")
        try:
            values[key.strip().replace("-", "_")] = yaml.safe_load(text)
        except (ValueError, RecursionError, yaml.YAMLError) as error:
            raise InputError(f"{option}: {name}: {item} cannot be read.") from error
    values = _require_of_all(f"{option}: {name}", typed(f"{option}: {name}", values, program.options))
    if not {match["model"], match["start"]} <= {*program.models, None}:
        raise InputError(f"{option}: expected one of {', '.join(program.models)}, or MODEL@START. Received: {name}")
    place = {"model": match["model"], "seed": seed, "out": _folder(options.out, name, seed)}
    run_options = with_values(default, values | place)
    if match["start"] is None:
        return Planned(name, seed, run_options)
    epochs, max_steps, start = run_options.fit.epochs, run_options.fit.max_steps, match["start"]
    first = epochs // 2 if options.start_epochs is None else options.start_epochs
    if not 0 < first < epochs:
        raise InputError(f"{option}: {name}: --epochs must exceed the {first} epochs of {start}. Received: {epochs}")
    if max_steps and max_steps * first < epochs:
        raise InputError(f"{option}: {name}: --max-steps leaves no training step for {start}. Received: {max_steps}")
    out = _folder(options.out, start + name.removeprefix(name.partition(":")[0]), seed, f"_{first}_epochs")
    steps = max_steps and max(1, max_steps * first // epochs)
    start_values = {"model": start, "out": out, "epochs": first, "max_steps": steps, "export": False}
    rest = with_values(run_options, {"start_from": out})
    return Planned(name, seed, rest, with_values(run_options, start_values))


def _folder(out, name, seed, more=""):
    name = re.sub(r"[^\w.+-]+", "_", name.replace("@", "_from_"))
    return str(pathlib.Path(out, f"{name}{more}_seed_{seed}"))
