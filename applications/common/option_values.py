"""Values of options: their names and descriptions, a flat dictionary of them, files that have them, checks."""

import ast
import contextlib
import dataclasses
import inspect
import itertools
import math
import pathlib
import textwrap
import types
import typing
from typing import Annotated, Literal

import yaml

from applications.common.errors import InputError
from applications.common.options import Bound


def fields_of(options_class):
    """Return a dictionary from the name of each option, in nested groups too, to its annotation."""
    annotations = {}
    hints = typing.get_type_hints(options_class, include_extras=True)
    for field in dataclasses.fields(options_class):
        hint = hints[field.name]
        of_field = fields_of(hint) if dataclasses.is_dataclass(hint) else {field.name: hint}
        twice = annotations.keys() & of_field.keys()
        if twice:
            raise TypeError(f"{options_class.__name__} has two options of one name: {', '.join(twice)}")
        annotations |= of_field
    return annotations


def texts_of(options_class):
    """Return a dictionary from the name of each option, in nested groups too, to the docstring below it."""
    texts = {}
    for parent in reversed(options_class.__mro__[:-1]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(parent))).body
        for field, text in itertools.pairwise(tree.body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                texts[field.target.id] = " ".join(text.value.value.split())
    descriptions = {}
    for name, hint in typing.get_type_hints(options_class).items():
        if dataclasses.is_dataclass(hint):
            descriptions |= texts_of(hint)
        elif name in texts:
            descriptions[name] = texts[name]
    return descriptions


def is_file(annotation):
    """Return whether the value of an option is a file, or several, that must exist."""
    if isinstance(annotation, Bound):
        return "file" in annotation.words or "folder" in annotation.words
    return any(map(is_file, typing.get_args(annotation)))


def values_of(options):
    """Return a flat dictionary of all options, as config.yaml has them."""
    values = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        values |= values_of(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return values


def first_value(name, *options):
    """Return the value of an option from the first of several options that have one; `None` among them is let pass."""
    return next((getattr(x, name) for x in options if x is not None and getattr(x, name) is not None), None)


def with_values(options, values):
    """Return a copy of options with the values of a flat dictionary."""
    changed = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            changed[field.name] = with_values(value, values)
        elif field.name in values:
            changed[field.name] = values[field.name]
    return dataclasses.replace(options, **changed)


def check(options, files=True):
    """Raise `InputError`, which names the option as the command line has it, for a value that an option cannot have.

    Without `files` the files and folders that options name may be missing.
    """
    values = values_of(options)
    for name, annotation in fields_of(type(options)).items():
        if files or not is_file(annotation):
            _check_bounds(_flag(name), values[name], annotation)
    _check_together(options)


def read_values(place, path, options_class, extensible=True):
    """Return the values that a YAML file has for options, a flat dictionary.

    Args:
        place: Name of the command line's option that names the file, for the errors.
        path: YAML file, one `name: value` per option; `extends: FILE` takes what it leaves out from another one.
        options_class: The class of the options.
        extensible: Whether the file may extend another one.

    Raises:
        InputError: If the file cannot be read, names an option that there is not, or has a value of another type.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        values = yaml.safe_load(text) or {}
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"{place}: {path} cannot be read: {error}") from error
    if not text.strip():
        raise InputError(f"{place}: {path} is empty; a pipe can be read only once.")
    if not isinstance(values, dict):
        raise InputError(f"{place}: {path} must hold one option per line, as in `units: 64`.")
    base, values_of_base = values.pop("extends", None), {}
    if base is not None:
        path_of_base = pathlib.Path(path).parent / str(base)
        if not extensible:
            raise InputError(f"{place}: {path} extends a file, and is extended by one; a file extends one without it.")
        values_of_base = read_values(place, path_of_base, options_class, extensible=False)
    return values_of_base | typed(f"{place}: {path}", values, options_class)


def typed(place, values, options_class):
    """Return the values of a dictionary as options have them: tuples for lists, numbers for their text."""
    annotations = fields_of(options_class)
    for name in values:
        if name in annotations:
            continue
        raise InputError(f"{place} names an unknown option: {name}. Known: {', '.join(sorted(annotations))}")
    return {name: _typed(f"{place}: {name}", value, annotations[name]) for name, value in values.items()}


def _flag(name):
    return f"--{name.replace('_', '-')}"


def _check_bounds(place, value, annotation):
    kind = typing.get_origin(annotation)
    if kind is Annotated:
        inner, *bounds = typing.get_args(annotation)
        _check_bounds(place, value, inner)
        for bound in bounds:
            if isinstance(bound, Bound) and not bound.holds(value):
                raise InputError(f"{place}: {bound.words}. Received: {value}")
    elif kind is tuple:
        for item in value:
            _check_bounds(place, item, typing.get_args(annotation)[0])
    elif kind in (typing.Union, types.UnionType):
        if value is not None:
            (inner,) = (part for part in typing.get_args(annotation) if part is not type(None))
            _check_bounds(place, value, inner)
    elif kind is Literal:
        if value not in typing.get_args(annotation):
            raise InputError(f"{place}: expected one of {_listed(typing.get_args(annotation))}. Received: {value}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{place}: must be finite. Received: {value}")


def _listed(choices):
    return ", ".join(map(str, choices))


def _check_together(options):
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            _check_together(value)
    if hasattr(options, "check"):
        options.check()


def _typed(place, value, annotation):
    kind, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if kind is Annotated:
        return _typed(place, value, inner[0])
    if kind in (typing.Union, types.UnionType):
        if value is None or value in ("none", "None"):
            return None
        return _typed(place, value, inner[0])
    if kind is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{place}: expected a list. Received: {value!r}")
        return tuple(_typed(place, item, inner[0]) for item in value)
    if kind is Literal:
        # YAML reads `none` as text; null stands for none, and `on` and `off` are booleans.
        value = "none" if value is None and "none" in inner else value
        if isinstance(value, bool) and {"on", "off"} <= {*inner}:
            value = "on" if value else "off"
        if value not in inner:
            raise InputError(f"{place}: expected one of {_listed(inner)}. Received: {value}")
        return value
    if annotation is float and isinstance(value, int | str) and not isinstance(value, bool):
        # YAML reads 1e-3, without a point, as text.
        with contextlib.suppress(ValueError):
            return float(value)
    if not isinstance(value, annotation) or (isinstance(value, bool) and annotation is not bool):
        raise InputError(f"{place}: expected {annotation.__name__}. Received: {value!r}")
    return value
