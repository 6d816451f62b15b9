"""Converts options to flat dictionaries and back, reads them from YAML files, and validates them."""

import dataclasses
import functools
import pathlib
import typing

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from applications.common.errors import InputError
from applications.common.options import OnDisk


def fields_of(options_class):
    """Return a dictionary that maps option names to type annotations, including nested groups."""
    annotations = {}
    hints = typing.get_type_hints(options_class, include_extras=True)
    for field in dataclasses.fields(options_class):
        hint = hints[field.name]
        nested = fields_of(hint) if dataclasses.is_dataclass(hint) else {field.name: hint}
        duplicates = annotations.keys() & nested.keys()
        if duplicates:
            raise TypeError(f"{options_class.__name__} has several options of the same name: {', '.join(duplicates)}")
        annotations |= nested
    return annotations


def is_file(annotation):
    """Return whether an option with this annotation names files or folders that must exist."""
    return isinstance(annotation, OnDisk) or any(map(is_file, typing.get_args(annotation)))


def is_optional(annotation):
    """Return whether an option with this annotation may be `None`."""
    return type(None) in typing.get_args(annotation)


def _items(options):
    return [(field.name, getattr(options, field.name)) for field in dataclasses.fields(options)]


def values_of(options):
    """Return one flat dictionary with the options of all groups, as config.yaml stores them."""
    values = {}
    for name, value in _items(options):
        values |= values_of(value) if dataclasses.is_dataclass(value) else {name: value}
    return values


def first_value(name, *options):
    """Return the option `name` from the first object that sets it, or `None`."""
    return next((getattr(x, name) for x in options if x is not None and getattr(x, name) is not None), None)


def with_values(options, values):
    """Return a copy of the options. The flat dictionary `values` overrides the options that it names."""
    changed = {}
    for name, value in _items(options):
        if dataclasses.is_dataclass(value):
            changed[name] = with_values(value, values)
        elif name in values:
            changed[name] = values[name]
    return dataclasses.replace(options, **changed)


def check(options, files=True):
    """Raise `InputError` if an option has an invalid value.
    If `files` is true, also raise it if an option names a file that does not exist."""
    _validated(type(options), values_of(options), lambda name: f"--{name.replace('_', '-')}", files)
    _check_together(options)


def _check_together(options):
    for _, value in _items(options):
        if dataclasses.is_dataclass(value):
            _check_together(value)
    if hasattr(options, "check"):
        options.check()


def read_values(place, path, options_class):
    """Read a YAML file of `name: value` lines. Return the options as a flat dictionary.
    Error messages begin with `place`, the command-line option that names the file."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        values = yaml.safe_load(text) or {}
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"{place}: {path} cannot be read: {error}") from error
    if not text.strip():
        raise InputError(f"{place}: {path} is empty. If it is a pipe, it can be read only once.")
    if not isinstance(values, dict):
        raise InputError(f"{place}: {path} must contain one option per line, as in `units: 64`.")
    return typed(f"{place}: {path}", values, options_class)


def typed(place, values, options_class):
    """Convert values from YAML to the types of their options: lists to tuples, strings to numbers."""
    annotations = fields_of(options_class)
    for name in values:
        if name not in annotations:
            raise InputError(f"{place} names an unknown option: {name}. Known: {', '.join(sorted(annotations))}")
    plain = {name: _plain(value, annotations[name]) for name, value in values.items()}
    return _validated(options_class, plain, lambda name: f"{place}: {name}", files=False)


def _plain(value, annotation):
    """Convert "none" to `None`, and a boolean to "on" or "off", if the option accepts the result."""
    if isinstance(value, bool) and "on" in typing.get_args(annotation):
        return "on" if value else "off"
    return None if value in ("none", "None") and is_optional(annotation) else value


@functools.cache
def _adapter(options_class):
    values = TypedDict(options_class.__name__, fields_of(options_class), total=False)
    values.__pydantic_config__ = ConfigDict(allow_inf_nan=False)
    return TypeAdapter(values)


def _validated(options_class, values, place_of, files):
    try:
        return _adapter(options_class).validate_python(values, context=files)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        message = first["msg"].replace("Input should be", "must be")
        raise InputError(f"{place_of(first['loc'][0])}: {message}. Received: {first['input']}") from error
