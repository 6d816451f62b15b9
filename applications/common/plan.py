"""The runs that a comparison consists of, known before TensorFlow is loaded."""

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
        name: As `--models` has it: MODEL[@START][:option=value,...].
        seed: Its seed.
        options: Options of `train`.
        start: Options of the run that it starts from, or `None`.
        is_member: Whether the run is there for an ensemble alone.
    """

    name: str
    seed: int
    options: typing.Any
    start: typing.Any = None
    is_member: bool = False


def plan(program, options):
    """Return the runs of a comparison, the seeds of one model after the other.

    Raises:
        InputError: For a name or an option that is wrong, and for a folder that holds a run with other options.
    """
    default = with_values(program.default, {} if options.preset is None else program.preset_values(options.preset))
    if options.options is not None:
        values = read_values("--options", options.options, program.options)
        _refuse_own("--options", values)
        default = with_values(default, values)
    _refuse_own("compare", options.of_train)
    default = with_values(default, options.of_train)
    # The baseline may be one that is not trained, but it has to be a name.
    _planned(program, options, default, options.baseline, options.first_seed, "--baseline")
    planned = [
        _planned(program, options, default, name, options.first_seed + index)
        for name in options.models
        for index in range(options.seeds)
    ]
    num_members = getattr(options, "num_members", 0)
    for index in range(options.seeds, options.seeds * num_members):
        run = _planned(program, options, default, options.baseline, options.first_seed + index)
        planned.append(dataclasses.replace(run, is_member=True))
    if options.start_epochs is not None and not any(run.start for run in planned):
        raise InputError("--start-epochs: none of the models is MODEL@START.")
    outs = {}
    for run in planned:
        other = outs.setdefault(run.options.run.out, run)
        if other is not run:
            raise InputError(f"--models: {other.name} and {run.name} would have one folder, {run.options.run.out}.")
    for run in planned:
        for run_options in filter(None, (run.options, run.start)):
            if run_options.fit.strategy == "multi_worker":
                raise InputError("--strategy multi_worker: train such a run by itself, on all workers at once.")
            check(run_options)
            _check_folder(program, run_options, ("epochs", "max_steps") if run.start else ())
    return planned


def _refuse_own(place, values):
    """Raise `InputError` for options that a comparison sets itself."""
    own = [name for name in ("model", "seed", "out", "resume", "overwrite") if name in values]
    if own:
        raise InputError(f"{place}: a comparison sets {', '.join(own)} of each run itself.")


def _planned(program, options, default, name, seed, option="--models"):
    match = _MODEL.fullmatch(name)
    if match is None:
        raise InputError(f"{option}: expected MODEL[@START][:option=value,...]. Received: {name}")
    values = {}
    for item in match["values"].split(",") if match["values"] else ():
        key, equals, text = item.partition("=")
        try:
            values[key.strip().replace("-", "_")] = yaml.safe_load(text)
        except (ValueError, RecursionError, yaml.YAMLError) as error:
            raise InputError(f"{option}: {name}: {item} cannot be read.") from error
        if not equals:
            raise InputError(f"{option}: {name}: expected option=value after the colon. Received: {item}")
    values = typed(f"{option}: {name}", values, program.options)
    _refuse_own(f"{option}: {name}", values)
    known = typing.get_args(typing.get_type_hints(program.options)["model"])
    for model in filter(None, (match["model"], match["start"])):
        if model not in known:
            raise InputError(f"{option}: expected one of {', '.join(known)}, or MODEL@START. Received: {name}")
    asked = with_values(default, values | {"seed": seed})
    text = f":{match['values']}" if match["values"] else ""
    own = {"model": match["model"], "out": _folder(options.out, name, seed)}
    if match["start"] is None:
        return Planned(name, seed, with_values(asked, own))
    epochs = asked.fit.epochs
    first = epochs // 2 if options.start_epochs is None else options.start_epochs
    if not 0 < first < epochs:
        raise InputError(f"{option}: {name} needs an epoch at least after the {first} of its start. It has {epochs}.")
    if asked.fit.max_steps and asked.fit.max_steps * first < epochs:
        raise InputError(f"{option}: {name} needs a step for its start. It has --max-steps {asked.fit.max_steps}.")
    out = _folder(options.out, f"{match['start']}{text}", seed, f"_{first}_epochs")
    steps = asked.fit.max_steps and max(1, asked.fit.max_steps * first // epochs)
    start = {"model": match["start"], "out": out, "epochs": first, "max_steps": steps, "export": False}
    return Planned(name, seed, with_values(asked, own | {"start_from": out}), with_values(asked, start))


def _folder(out, name, seed, more=""):
    name = re.sub(r"[^\w.+-]+", "_", name.replace("@", "_from_"))
    return str(pathlib.Path(out, f"{name}{more}_seed_{seed}"))


def _check_folder(program, run_options, fixed):
    """Raise `InputError` if the folder of a run holds one with other options.

    With more epochs or steps than before one that starts from another would go on, and not start again from a longer
    one.
    """
    out = pathlib.Path(run_options.run.out)
    if not (out / "config.yaml").exists():
        return
    may_differ = set(program.changeable) - set(fixed)
    RunFolder.check(out, config_of(run_options), True, may_differ, config_of(program.default))
