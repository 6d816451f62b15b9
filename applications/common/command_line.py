"""Command lines of the applications: `python -m applications.NAME COMMAND --option value`.

Options are data classes read by tyro. Their defaults come from a preset, then from `--config FILE` (YAML, the same
names), then from the command line.
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
    """Return the options that the arguments describe; `InputError` for an unknown preset, or a file that cannot be."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset")
    parser.add_argument("--config")
    known, rest = (
        parser.parse_known_args(arguments) if presets else (argparse.Namespace(preset=None, config=None), arguments)
    )
    default = next(iter(presets.values())) if presets else None
    if known.preset is not None:
        if known.preset not in presets:
            raise InputError(f"--preset: expected one of {', '.join(presets)}. Received: {known.preset}")
        default = presets[known.preset]
    if known.config is not None:
        default = dataclasses.replace(default, **_read_yaml(known.config, options_class))
    description = options_class.__doc__ or ""
    if not presets:
        # Without a default, so that it may have options that must be given.
        return tyro.cli(options_class, prog=program, args=rest, description=description)
    description += f" Presets (--preset): {', '.join(presets)}. --config FILE reads options from YAML."
    return tyro.cli(options_class, prog=program, default=default, args=rest, description=description)


def _read_yaml(path, options_class):
    try:
        with open(path, encoding="utf-8") as file:
            values = yaml.safe_load(file) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"--config: {path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"--config: {path} must hold one option per line, as in `units: 64`.")
    fields = {field.name for field in dataclasses.fields(options_class)}
    unknown = sorted(set(values) - fields)
    if unknown:
        raise InputError(
            f"--config: {path} names unknown options: {', '.join(unknown)}. Known: {', '.join(sorted(fields))}"
        )
    types = typing.get_type_hints(options_class)
    return {name: _checked(f"--config: {path}: {name}", value, types[name]) for name, value in values.items()}


def _checked(place, value, annotation):
    """Return a value of the annotated type; `InputError` if it is of another. Checks types made of plain ones only."""
    kinds = typing.get_args(annotation) or (annotation,)
    if not set(kinds) <= {str, int, float, bool, type(None)}:
        return tuple(value) if isinstance(value, list) else value
    if float in kinds and isinstance(value, int | str) and not isinstance(value, bool):
        # YAML reads 1e-3, without a point, as text.
        with contextlib.suppress(ValueError):
            return float(value)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        names = " or ".join("nothing" if kind is type(None) else kind.__name__ for kind in kinds)
        raise InputError(f"{place}: expected {names}. Received: {value!r}")
    return value
