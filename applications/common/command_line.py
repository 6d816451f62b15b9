"""Command line of the programs: `python -m applications.NAME COMMAND --option value`.

Later sources of an option override earlier sources: the default, the folder of a resumed run, a preset,
`--config FILE` (YAML, names with underscores) and the command line. Options are checked before TensorFlow is imported.
"""

import argparse
import contextlib
import dataclasses
import functools
import io
import pathlib
import pkgutil
import re
import sys

import tyro

from applications.common.errors import InputError, input_error_in
from applications.common.option_values import check, fields_of, is_optional, read_values, values_of, with_values
from applications.common.plan import plan
from applications.common.runs import RunFolder
from applications.common.writers import require_writable, unlock

# The common commands. `_work_of` looks up all other commands in the program.
_FUNCTIONS = {name: f"commands:{name}" for name in ("evaluate", "generate", "export")}
_FUNCTIONS |= {"predict": "commands:generate", "compare": "compare:compare", "uncertainty": "methods:uncertainty"}


def main(program, arguments=None):
    """Run the command named by the first argument, and return the exit status.

    Expected errors are printed as one line. The status is 2 for an `InputError`, 3 for a NaN or infinite loss, 4 for a
    file that cannot be written or read, 5 for a lost worker, and 130 for an interruption.

    Args:
        program: `Program`.
        arguments: List of strings. Defaults to `sys.argv[1:]`.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: python -m {program.name} COMMAND [--option value ...]\n")
        for name, options_class in program.commands.items():
            print(f"  {name:11} {options_class.__doc__.strip().splitlines()[0]}")
        print(f"\npython -m {program.name} COMMAND --help lists the options of a command.")
        return 0
    name, rest = arguments[0], arguments[1:]
    try:
        if name not in program.commands:
            raise InputError(f"Unknown command {name!r}: expected one of {', '.join(program.commands)}.")
        options = read_options(program, name, rest)
        prepare(program, name, options)
        _work_of(program, name)(options)
    except KeyboardInterrupt:
        return _fail("interrupted. Continue a training run with train --resume", 130)
    except Exception as error:
        # If a dataset raises an `InputError`, TensorFlow replaces it with its own error.
        error = input_error_in(error) or error
        if "Collective ops is aborted" in str(error):
            return _fail("a worker was lost; see its output. Restart all workers, with --resume if --out exists", 5)
        for kind, status in ((InputError, 2), (FloatingPointError, 3), (OSError, 4)):
            if isinstance(error, kind):
                return _fail(error, status)
        raise
    finally:
        unlock()
    return 0


def _work_of(program, name):
    if name not in _FUNCTIONS:
        return program.function(name)
    return functools.partial(pkgutil.resolve_name(f"applications.common.{_FUNCTIONS[name]}"), program.application())


def _fail(error, status):
    print(f"error: {' '.join(str(error).splitlines())}", file=sys.stderr)
    return status


def read_options(program, name, arguments):
    """Return the options of the command `name`, parsed from `arguments`, a list of str.
    `arguments` may contain `--config FILE` and, for `train`, `--preset NAME`. `--help` raises `SystemExit`."""
    options_class = program.commands[name]
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config")
    if name == "train":
        parser.add_argument("--preset")
        parser.add_argument("--out")
        parser.add_argument("--resume", action="store_true")
    try:
        files, rest = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise InputError(f"{error.argument_name}: {error.message}.") from error
    values = {} if files.config is None else read_values("--config", files.config, options_class)
    fields = dataclasses.fields(options_class)
    required = [x.name for x in fields if x.default is x.default_factory is dataclasses.MISSING]
    default = options_class(**dict.fromkeys(required, tyro.MISSING))
    description = (options_class.__doc__ or "").strip() + "\n\n--config FILE reads options from YAML."
    if name == "train":
        description += f" Presets (--preset): {', '.join(program.presets)}."
        values |= {name: value for name, value in vars(files).items() if name in ("out", "resume") and value}
        if files.resume and not {"-h", "--help"} & set(rest):
            default = program.options_of(RunFolder.load(values.setdefault("out", program.default.run.out)))
        if files.preset is not None:
            default = with_values(default, program.preset_values(files.preset))
    if name == "compare":
        default = with_values(default, {"models": default.models or program.models})
        default = with_values(default, {"baseline": default.baseline or default.models[0]})
    parse = functools.partial(_parse, f"python -m {program.name} {name}", description)
    default = with_values(default, values)
    if name != "compare":
        return parse(options_class, default, rest)
    options, rest = parse(options_class, default, rest, return_unknown_args=True)
    if rest:
        values, named = values_of(parse(program.options, program.default, rest)), set(map(_option_in, rest))
        options.train_values = {option: x for option, x in values.items() if {option, f"no_{option}"} & named}
    return options


def _parse(prog, description, options_class, default, arguments, **options):
    """Parse arguments with tyro. Raise an `InputError` with the message of tyro if they are invalid."""
    annotations, words = fields_of(options_class), []
    for argument in arguments:
        option = _option_in(argument if "=" in argument or not words else words[-1])
        # Other options may have a choice `none`, which must not become `None`.
        if argument.rpartition("=")[2] == "none" and option in annotations and is_optional(annotations[option]):
            argument = argument.removesuffix("none") + "None"
        words.append(argument)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            config = (tyro.conf.OmitArgPrefixes,)
            return tyro.cli(
                options_class, prog=prog, description=description, default=default, args=words, config=config, **options
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        # tyro prints its message in a box, with a title and a help text.
        sections = re.split("╭.*╮|[─-]{4,}", re.sub("[│╰╯]", " ", printed.getvalue()))
        text = " ".join(" ".join(sections[1:] or sections).split())
        raise InputError(re.split("Argument helptext:|For full helptext", text)[0].strip()) from None


def _option_in(argument):
    """Return the name in an argument `--name` or `--name=value`, with underscores."""
    return argument.partition("=")[0].removeprefix("--").replace("-", "_")


def prepare(program, name, options):
    """Raise `InputError` for every mistake that can be detected before TensorFlow is imported."""
    if name == "train":
        program.check_train(options)
        return
    check(options)
    if name == "compare":
        plan(program, options)
        if options.results is not None:
            require_writable("--results", pathlib.Path(options.results).parent)
    if hasattr(options, "out"):
        require_writable("--out", options.out or options.run)
    if hasattr(options, "run"):
        folder = RunFolder.load(options.run)
        run_options = program.options_of(folder)
        folder.require_weights()
        if hasattr(options, "check_run"):
            options.check_run(run_options)
        epochs, done = run_options.fit.epochs, folder.num_epochs()
        if done < epochs and not folder.is_finished(epochs):
            print(f"the run has not finished: {done} of {epochs} epochs are done", file=sys.stderr)
