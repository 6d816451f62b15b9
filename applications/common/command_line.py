"""Command lines of the programs: `python -m applications.NAME COMMAND --option value`.

The values of options come from their classes or a preset, then from `--config FILE` (YAML, the same names with
underscores), then from the command line; those of a run that is resumed from its folder first. All of them are read,
by tyro, and checked before TensorFlow is loaded.
"""

import argparse
import contextlib
import dataclasses
import functools
import importlib
import io
import pathlib
import re
import sys

import tyro

from applications.common.errors import InputError, input_error_in
from applications.common.option_values import check, fields_of, is_optional, read_values, values_of, with_values
from applications.common.runs import RunFolder
from applications.common.writers import require_writable, unlock

_COMMANDS = {
    "train": (None, "Train a model, report on held-out data, write samples, pictures and the SavedModel."),
    "evaluate": ("commands", "Report on data of a run, or on other files."),
    "generate": ("commands", "Turn lines of text into generated lines."),
    "predict": ("commands", "Answer the inputs of a file."),
    "compare": ("compare", "Train models with several seeds; print tables with differences and intervals."),
    "export": ("commands", "Write the SavedModel of a run."),
    "uncertainty": ("methods", "Compare draws of a run with a fitted temperature, on test, other and corrupted data."),
}


def main(program, arguments=None):
    """Run the command that the first argument names, and turn an expected error into one line and an exit status.

    The status is 2 for an `InputError`, 3 for a loss that is not finite, 4 for a file that cannot be written or read, 5
    where another worker was lost, 130 for an interruption.

    Args:
        program: `Program`.
        arguments: List of strings, `sys.argv[1:]` by default.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        lines = "\n".join(f"  {name:10} {_line_of(program, name)}" for name in program.commands)
        print(
            f"usage: python -m {program.name} COMMAND [--option value ...]\n\n{lines}\n\n"
            f"python -m {program.name} COMMAND --help lists the options of a command."
        )
        return 0
    name, rest = arguments[0], arguments[1:]
    try:
        if name not in program.commands:
            raise InputError(f"Unknown command {name!r}: expected one of {', '.join(program.commands)}.")
        options = read_options(program, name, rest)
        prepare(program, name, options)
        _work_of(program, name)(options)
    except KeyboardInterrupt:
        return _fail("interrupted. A run that was training goes on with train --resume", 130)
    except Exception as error:
        # TensorFlow's error where it reads data may stand for one of ours.
        error = input_error_in(error) or error
        if "Collective ops is aborted" in str(error):
            return _fail(
                "a worker was lost: its output says why. Start all again, with --resume if there is a folder", 5
            )
        for kind, status in ((InputError, 2), (FloatingPointError, 3), (OSError, 4)):
            if isinstance(error, kind):
                return _fail(error, status)
        raise
    finally:
        unlock()
    return 0


def _line_of(program, name):
    """Return the help of a command; for a program's own command the first line of its options' docstring."""
    return _COMMANDS[name][1] if name in _COMMANDS else program.commands[name].__doc__.strip().splitlines()[0]


def _work_of(program, name):
    """Return the function of the options that does the work of a command: the platform's, or the program's own."""
    if name == "train" or name not in _COMMANDS:
        return program.function(name)
    module = importlib.import_module(f"applications.common.{_COMMANDS[name][0]}")
    return functools.partial(getattr(module, "generate" if name == "predict" else name), program.application())


def _fail(error, status):
    print(f"error: {' '.join(str(error).splitlines())}", file=sys.stderr)
    return status


def read_options(program, name, arguments):
    """Return the options of a command that the arguments describe.

    Args:
        program: `Program`.
        name: Name of the command.
        arguments: List of strings: `--preset NAME` for `train`, `--config FILE`, and options.

    Raises:
        InputError: For an unknown preset, a file that cannot be read or does not hold options of this command, and an
            option that is unknown, missing or of another type.
        SystemExit: For `--help`.
    """
    options_class = program.commands[name]
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config")
    if name == "train":
        parser.add_argument("--preset")
        parser.add_argument("--out")
        parser.add_argument("--resume", action="store_true")
    try:
        known, rest = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise InputError(f"{error.argument_name}: {error.message}.") from error
    values = {} if known.config is None else read_values("--config", known.config, options_class)
    required = [field.name for field in dataclasses.fields(options_class) if _is_required(field)]
    default = options_class(**dict.fromkeys(required, tyro.MISSING))
    description = (options_class.__doc__ or "").strip() + "\n\n--config FILE reads options from YAML."
    if name == "train":
        description += f" Presets (--preset): {', '.join(program.presets)}."
        if known.resume and not {"-h", "--help"} & set(rest):
            values["out"] = known.out or values.get("out", program.default.run.out)
            default = program.options_of(RunFolder.load(values["out"]))
        if known.preset is not None:
            default = with_values(default, program.preset_values(known.preset))
        rest += ([] if known.out is None else ["--out", known.out]) + (["--resume"] if known.resume else [])
    parse = functools.partial(_parse, f"python -m {program.name} {name}", description)
    default = with_values(default, values)
    if name != "compare":
        return parse(options_class, default, rest)
    options, rest = parse(options_class, default, rest, return_unknown_args=True)
    # An unknown option of `compare` is one of `train`.
    if rest:
        values, named = values_of(parse(program.options, program.default, rest)), set(map(_spelt, rest))
        options.of_train = {option: x for option, x in values.items() if {option, f"no_{option}"} & named}
    return options


def _is_required(field):
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _parse(prog, description, options_class, default, arguments, **options):
    """Call tyro; `InputError` has the message of its box."""
    arguments = _with_none(arguments, fields_of(options_class))
    call = functools.partial(tyro.cli, prog=prog, description=description, config=(tyro.conf.OmitArgPrefixes,))
    written = io.StringIO()
    try:
        with contextlib.redirect_stderr(written):
            return call(options_class, default=default, args=arguments, **options)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(_message_of(written.getvalue())) from None


def _message_of(box):
    """Return the message and the similar options of a box of tyro; the rest of it is help."""
    sections = [[]]
    for line in box.splitlines():
        if line.startswith("╭") or re.fullmatch("[─-]{4,}", line.strip("│╰╯ ")):
            sections.append([])
        else:
            sections[-1].append(line.strip("│ "))
    # A message without a box has no title before it.
    _, message, *more = ["", *map(" ".join, sections)][-max(len(sections), 2) :]
    return " ".join([message.strip(), *(text.strip() for text in more if "Perhaps you meant" in text)])


def _spelt(argument):
    return argument.partition("=")[0].removeprefix("--").replace("-", "_") if argument.startswith("--") else None


def _with_none(arguments, annotations):
    """Return arguments in which `none` is written as tyro reads it, for options that may have no value."""
    words = [""]
    for argument in arguments:
        option = _spelt(argument if "=" in argument else words[-1])
        if argument.rpartition("=")[2] == "none" and option in annotations and is_optional(annotations[option]):
            argument = argument.removesuffix("none") + "None"
        words.append(argument)
    return words[1:]


def prepare(program, name, options):
    """Raise `InputError` for whatever can be known to be wrong before TensorFlow is loaded."""
    if name == "train":
        program.check_train(options)
        return
    check(options)
    if name == "compare":
        from applications.common.plan import plan

        plan(program, options)
        if options.results is not None:
            require_writable("--results", pathlib.Path(options.results).parent)
    if hasattr(options, "out"):
        # Without one it is the run's folder that is written.
        require_writable("--out", options.out or options.run)
    if not hasattr(options, "run"):
        return
    folder = RunFolder.load(options.run)
    run_options = program.options_of(folder)
    folder.require_weights()
    if hasattr(options, "check_run"):
        options.check_run(run_options)
    fit, done = run_options.fit, folder.num_epochs()
    if done < fit.epochs and not folder.is_finished(fit.epochs):
        print(f"the run has not finished: it has {done} of {fit.epochs} epochs", file=sys.stderr)
