"""Command lines of the programs: `python -m applications.NAME COMMAND --option value`.

The values of options come from their classes or a preset, then from `--config FILE` (YAML, the same names with
underscores), then from the command line; those of a run that is resumed from its folder first. All of them are read,
by tyro, and checked before TensorFlow is loaded.
"""

import argparse
import contextlib
import dataclasses
import difflib
import functools
import importlib
import os
import pathlib
import re
import sys
import textwrap
import types
import typing

import tyro

from applications.common.errors import InputError, input_error_in
from applications.common.option_values import check, fields_of, is_file, read_values, texts_of, values_of, with_values
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
# Lines of TensorFlow's import that are no errors.
_CHATTER = re.compile(r"WARNING: All log messages before absl::InitializeLog\(\)|[IW]\d{4} \d\d:\d\d:\d\d")


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
        with quiet_start():
            importlib.import_module("tensorflow")
            work = _work_of(program, name)
        work(options)
    except InputError as error:
        return _fail(error, 2)
    except FloatingPointError as error:
        return _fail(error, 3)
    except OSError as error:
        return _fail(error, 4)
    except KeyboardInterrupt:
        return _fail("interrupted. A run that was training goes on with train --resume", 130)
    except Exception as error:
        # One that was raised where TensorFlow reads data, whose error is not ours.
        expected = input_error_in(error)
        if expected is None and "Collective ops is aborted" in str(error):
            return _fail(
                "a worker was lost: its output says why. Start all again, with --resume if there is a folder", 5
            )
        if expected is None:
            raise
        return _fail(expected, 2)
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
            option that is unknown or missing.
        SystemExit: For `--help`, and for options of another type.
    """
    options_class = program.commands[name]
    if name == "train" and {"-h", "--help"} & set(arguments):
        print(_first_options(program))
        raise SystemExit(0)
    arguments = ["--help" if argument == "--help-all" else argument for argument in arguments]
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
    values = {}
    if known.config is not None:
        values = read_values("--config", known.config, options_class)
    default = _without_defaults(options_class)
    description = (options_class.__doc__ or "").strip() + "\n\n--config FILE reads options from YAML."
    if name == "train":
        description += f" Presets (--preset): {', '.join(program.presets)}."
        if known.resume and not {"-h", "--help"} & set(rest):
            values["out"] = known.out or values.get("out", program.default.run.out)
            default = program.options_of(RunFolder.load(values["out"]))
        if known.preset is not None:
            default = with_values(default, program.preset_values(known.preset))
        rest += ([] if known.out is None else ["--out", known.out]) + (["--resume"] if known.resume else [])
    parse = functools.partial(
        tyro.cli, prog=f"python -m {program.name} {name}", config=(tyro.conf.OmitArgPrefixes,), description=description
    )
    names = fields_of(options_class)
    default, rest = with_values(default, values), _with_none(rest, names)
    named = {_spelt(argument): argument for argument in rest if argument.startswith("--")}
    for spelt, argument in named.items():
        # What is no option of `compare` may be one of `train`.
        if name != "compare" and not {spelt, spelt.removeprefix("no_")} & {*names, "help"}:
            _refuse(argument, names)
    for option in dataclasses.fields(default):
        missing = getattr(default, option.name) is tyro.MISSING and option.name not in named
        if missing and not {"-h", "--help"} & set(rest):
            raise InputError(f"--{option.name.replace('_', '-')}: missing. {texts_of(options_class)[option.name]}")
    options, unknown = parse(options_class, default=default, args=rest, return_unknown_args=True)
    if name == "compare":
        options.of_train = _values_of_train(program, parse, unknown, names)
    elif unknown:
        _refuse(unknown[0], names)
    return options


def _refuse(argument, known):
    """Raise `InputError` for an argument that is no known option, with the most similar one."""
    flags = [f"--{option.replace('_', '-')}" for option in known]
    similar = difflib.get_close_matches(argument.partition("=")[0], flags, 1, 0.75)
    raise InputError(f"{argument}: no such option.{f' Did you mean {similar[0]}?' if similar else ''}")


# The options of `train` that a newcomer needs first, beside the files.
_FIRST = ("model", "out", "resume", "seed", "batch_size", "epochs", "learning_rate", "early_stopping", "jit")


def _first_options(program):
    """Return the help of `train`: its first options."""
    lines, annotations, values = [], fields_of(program.options), values_of(program.default)
    for name, text in texts_of(program.options).items():
        if name in _FIRST or (is_file(annotations[name]) and not name.startswith(("valid_", "test_"))):
            value = f" (default: {values[name]})" if values[name] else ""
            is_choice = typing.get_origin(annotations[name]) is typing.Literal
            choices = ", ".join(typing.get_args(annotations[name])) if is_choice else ""
            for line, indent in ((f"--{name.replace('_', '-')} {choices}", 2), (text + value, 4)):
                lines.append(textwrap.fill(line, 116, initial_indent=indent * " ", subsequent_indent=4 * " "))
    return "\n".join(
        [
            f"usage: python -m {program.name} train [--preset NAME] [--config FILE] [--option value ...]",
            f"\n{program.options.__doc__.strip()}\n",
            *lines,
            f"\nPresets: {', '.join(program.presets)}. --config FILE reads options from YAML.",
            f"All {len(values)} options: python -m {program.name} train --help-all",
        ]
    )


def _values_of_train(program, parse, arguments, others):
    """Return the values of the options of `train` that the arguments name, a flat dictionary; an
    error suggests options of `compare` too, the `others`."""
    if not arguments:
        return {}
    known = fields_of(program.options)
    arguments = _with_none(arguments, known)
    options, unknown = parse(program.options, default=program.default, args=arguments, return_unknown_args=True)
    if unknown:
        _refuse(unknown[0], [*others, *known])
    values = values_of(options)
    named = {_spelt(argument) for argument in arguments} - {None}
    return {name: values[name] for name in {x if x in values else x.removeprefix("no_") for x in named}}


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
    if done < (fit.stop_after or fit.epochs) and not folder.is_finished(fit.epochs, fit.stop_after):
        print(f"the run has not finished: it has {done} of {fit.stop_after or fit.epochs} epochs", file=sys.stderr)


@contextlib.contextmanager
def quiet_start():
    """Hide the lines that TensorFlow writes to standard error while it is imported, unless they are errors.

    Another process reads it, which is there to write the errors even if this one is ended by one of them.
    """
    if "tensorflow" in sys.modules or not hasattr(os, "fork"):
        yield
        return
    sys.stderr.flush()
    standard_error = os.dup(2)
    reading, writing = os.pipe()
    reader = os.fork()
    if not reader:
        os.close(writing)
        _pass_errors(reading, standard_error)
        os._exit(0)
    os.dup2(writing, 2)
    os.close(writing)
    os.close(reading)
    try:
        yield
    finally:
        sys.stderr.flush()
        # A process that was started meanwhile may hold the pipe open.
        os.write(2, _END)
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.waitpid(reader, 0)


_END = b"\n\0"


def _pass_errors(reading, standard_error):
    """Write the lines of a pipe that are no chatter, up to its end or the mark of it."""
    rest = b""
    while chunk := os.read(reading, 65536):
        *lines, rest = (rest + chunk).split(b"\n")
        ended = rest == b"\0"
        for line in lines:
            if line and not _CHATTER.match(line.decode(errors="replace")):
                os.write(standard_error, line + b"\n")
        if ended:
            return
    if rest:
        os.write(standard_error, rest + b"\n")


def _spelt(argument):
    return argument.partition("=")[0].removeprefix("--").replace("-", "_") if argument.startswith("--") else None


def _with_none(arguments, annotations):
    """Return arguments in which `none` is written as tyro reads it, for options that may have no value."""
    optional = {
        name
        for name, annotation in annotations.items()
        if typing.get_origin(annotation) in (typing.Union, types.UnionType)
    }
    words, previous = [], ""
    for argument in arguments:
        if argument == "none" and _spelt(previous) in optional:
            argument = "None"
        elif argument.endswith("=none") and _spelt(argument) in optional:
            argument = argument.removesuffix("none") + "None"
        words.append(argument)
        previous = argument
    return words


def _without_defaults(options_class):
    """Return options whose required fields are marked as missing, so that a file or the command line must give them."""
    required = [
        field.name
        for field in dataclasses.fields(options_class)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    return options_class(**dict.fromkeys(required, tyro.MISSING))
