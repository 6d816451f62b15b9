"""Command lines of the applications: `python -m applications.NAME COMMAND --option value`.

Options are data classes read by tyro. Their values come from the class or a preset, then from `--config FILE` (YAML,
the same names with underscores), then from the command line.
"""

import argparse
import contextlib
import dataclasses
import sys
import typing

import tyro
import yaml

from applications.common.errors import InputError


def run(program, commands, arguments=None):
    """Run the command that the first argument names, and turn an expected error into one line and an exit status.

    The status is 2 for an `InputError`, 3 for a loss that is not finite, 4 for a file that cannot be written or read.

    Args:
        program: Name for the usage line, for instance "python -m applications.ved".
        commands: Dictionary from name to (function of an options object, options class, presets or `None`); presets are
            a dictionary from name to an options object, the first the default.
        arguments: List of strings, `sys.argv[1:]` by default.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        lines = "\n".join(
            f"  {name:10} {function.__doc__.splitlines()[0]}" for name, (function, _, _) in commands.items()
        )
        print(
            f"usage: {program} COMMAND [--option value ...]\n\n{lines}\n\n"
            f"{program} COMMAND --help lists the options of a command."
        )
        return 0
    try:
        name, rest = arguments[0], arguments[1:]
        if name not in commands:
            raise InputError(f"Unknown command {name!r}: expected one of {', '.join(commands)}.")
        function, options_class, presets = commands[name]
        function(read_options(f"{program} {name}", options_class, presets, rest))
    except InputError as error:
        return _fail(error, 2)
    except FloatingPointError as error:
        return _fail(error, 3)
    except OSError as error:
        return _fail(error, 4)
    return 0


def _fail(error, status):
    print(f"error: {' '.join(str(error).splitlines())}", file=sys.stderr)
    return status


def read_options(program, options_class, presets, arguments):
    """Return the options that the arguments describe.

    Args:
        program: Name for the usage line.
        options_class: A data class.
        presets: Dictionary from name to an options object, the first the default, or `None`.
        arguments: List of strings: `--preset NAME` where there are presets, `--config FILE`, and options.

    Raises:
        InputError: For an unknown preset, or a file that cannot be read or does not hold options of this class.
        SystemExit: For `--help`, and for options that are unknown, missing or of another type.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config")
    if presets:
        parser.add_argument("--preset", default=next(iter(presets)))
    try:
        known, rest = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise InputError(f"{error.argument_name}: {error.message}.") from error
    default = find_preset(presets, known.preset) if presets else _without_defaults(options_class)
    if known.config is not None:
        default = read_file("--config", known.config, default)
    description = f"{options_class.__doc__ or ''} --config FILE reads options from YAML."
    if presets:
        description += f" Presets (--preset): {', '.join(presets)}."
    return tyro.cli(options_class, prog=program, default=default, args=rest, description=description)


def find_preset(presets, name):
    """Return the options of that name; `InputError` lists the known ones."""
    if name not in presets:
        raise InputError(f"--preset: expected one of {', '.join(presets)}. Received: {name}")
    return presets[name]


def read_file(option, path, default):
    """Return options with the values that a file has for them.

    Args:
        option: Name of the command line's option that names the file, for the errors.
        path: YAML file, one `name: value` per option.
        default: An options object, for what the file leaves out.

    Raises:
        InputError: If the file cannot be read, names an option that there is not, or has a value of another type.
    """
    try:
        with open(path, encoding="utf-8") as file:
            values = yaml.safe_load(file) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{option}: {path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"{option}: {path} must hold one option per line, as in `units: 64`.")
    types = typing.get_type_hints(type(default))
    fields = [field.name for field in dataclasses.fields(default)]
    unknown = [str(name) for name in values if name not in fields]
    if unknown:
        raise InputError(
            f"{option}: {path} names unknown options: {', '.join(unknown)}. Known: {', '.join(sorted(fields))}"
        )
    checked = {name: _checked(f"{option}: {path}: {name}", value, types[name]) for name, value in values.items()}
    return dataclasses.replace(default, **checked)


def _without_defaults(options_class):
    """Return options whose required fields are marked as missing, so that a file or the command line must give them."""
    required = [
        field.name
        for field in dataclasses.fields(options_class)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    return options_class(**dict.fromkeys(required, tyro.MISSING))


def _checked(place, value, annotation):
    """Return a value of the annotated type: plain, or a union or a tuple of plain ones; `InputError` otherwise."""
    if typing.get_origin(annotation) is tuple:
        kind = typing.get_args(annotation)[0]
        if not isinstance(value, list):
            raise InputError(f"{place}: expected a list of {kind.__name__}. Received: {value!r}")
        return tuple(_checked(place, item, kind) for item in value)
    kinds = typing.get_args(annotation) or (annotation,)
    if float in kinds and isinstance(value, int | str) and not isinstance(value, bool):
        # YAML reads 1e-3, without a point, as text.
        with contextlib.suppress(ValueError):
            return float(value)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        names = " or ".join("nothing" if kind is type(None) else kind.__name__ for kind in kinds)
        raise InputError(f"{place}: expected {names}. Received: {value!r}")
    return value
