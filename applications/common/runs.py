"""Reads and writes run folders, which contain the files of training runs."""

import collections.abc
import contextlib
import csv
import dataclasses
import hashlib
import json
import math
import os
import pathlib

import numpy as np
import yaml
from pydantic_core import to_jsonable_python

from applications.common.errors import InputError
from applications.common.writers import lock

_TEMPORARY = ".tmp-"
_DATA = "data.sha256"
WEIGHTS = "weights.npz"
CHECKPOINT = "checkpoints/checkpoint.npz"
HISTORY = "history.csv"
CODEC = "codec.json"


class RunFolder:
    """The folder of one training run, which contains a `config.yaml`.

    `open` starts or resumes a run. `load` reads an existing run.

    Args:
        path: Folder of an existing run.
        config: Dictionary of plain values: the options of the run.

    Example:

    >>> import tempfile
    >>> folder = RunFolder.open(tempfile.mkdtemp() + "/run", {"hidden_units": 8})
    >>> RunFolder.load(folder.path).config
    {'hidden_units': 8}
    """

    def __init__(self, path, config):
        self.path = pathlib.Path(path)
        self.config = config

    @classmethod
    def open(cls, path, config, resume=False, may_differ=(), update=dict):
        """Start a run in a new or empty folder, or resume a run. Lock the folder for this process.

        Takes the arguments of `check`. Raises the errors of `check`, and `InputError` if the folder is locked.
        """
        path = pathlib.Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock(path)
            cls.check(path, config, resume, may_differ, update)
            for leftover in path.rglob(f"{_TEMPORARY}*"):
                leftover.unlink()
            write_text_atomically(path / "config.yaml", _dump(config))
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror or error}") from error
        return cls.load(path)

    @classmethod
    def check(cls, path, config, resume=False, may_differ=(), update=dict):
        """Return the stored options, or `None` for a new run; raise `InputError` if `open` cannot use the folder.

        Args:
            path: Folder of the run.
            config: Dictionary of the requested options.
            resume: Whether to continue an existing run. If false, the folder must be new or empty.
            may_differ: Names of options that may change when a run is resumed. `open` stores their new values.
            update: Function that adds missing options to the config.yaml of an earlier version.
        """
        path = pathlib.Path(path)
        stored = _read_config(path)
        if stored is None:
            if resume:
                raise InputError(f"There is no run to resume in {path}: it has no config.yaml.")
            try:
                entries = path.iterdir() if path.exists() else ()
                unexpected = [entry for entry in entries if not entry.name.startswith(_TEMPORARY)]
            except OSError as error:
                raise InputError(f"{path} cannot be used as a run folder: {error.strerror or error}") from error
            if unexpected:
                raise InputError(f"{path} is not empty and contains no run. Choose a new or empty folder.")
        elif not resume:
            raise InputError(
                f"{path} already contains a run. Continue it (--resume), replace it (--overwrite), or choose "
                "another folder."
            )
        else:
            # YAML turns tuples into lists, so convert the options to YAML and back.
            old, new = (yaml.safe_load(_dump(values)) for values in (update(stored), config))
            words = {name: (_words(old, name), _words(new, name)) for name in old | new if name not in may_differ}
            differing = [f"{x}: {a} in the folder, {b} requested" for x, (a, b) in words.items() if a != b]
            if differing:
                raise InputError(
                    f"{path} contains a run with other options. Choose another folder, or omit these options: "
                    + "; ".join(differing)
                )
        return stored

    @classmethod
    def load(cls, path):
        """Return the `RunFolder` at a path; raise `InputError` if it contains no run."""
        config = _read_config(pathlib.Path(path))
        if config is None:
            raise InputError(f"{path} is not the folder of a run: it has no config.yaml.")
        return cls(path, config)

    def file(self, name):
        """Return the path of the file `name` in this folder; create the parent folder of the file."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def num_epochs(self):
        """Return the number of epochs so far, including epochs of the run that --start-from names."""
        rows = self.history() if (self.path / HISTORY).exists() else []
        return int(rows[-1]["epoch"]) if rows else 0

    def history(self):
        """Return the rows of history.csv, with `None` for empty cells.
        Raise `InputError` if the file is damaged."""
        path = self.path / HISTORY
        try:
            with open(path, encoding="utf-8", newline="") as file:
                rows = [
                    {name: float(value) if value else None for name, value in row.items()}
                    for row in csv.DictReader(file)
                ]
            if any(row.get("epoch") is None for row in rows):
                raise ValueError("a row without an epoch")
            return rows
        except (OSError, ValueError, TypeError, csv.Error) as error:
            raise InputError(f"{path} is damaged: {error}. Resume the run, which rewrites the file.") from error

    def require_weights(self):
        """Raise `InputError` if the run has not finished an epoch."""
        if not (self.path / WEIGHTS).exists():
            raise InputError(f"{self.path}: no epoch is finished, so {WEIGHTS} is missing. Use train --resume.")

    def is_finished(self, epochs):
        """Return whether the run has a report for at least this many epochs."""
        try:
            options = json.loads((self.path / "metrics.json").read_text(encoding="utf-8"))["options"]
            # `stop_after` was an option of earlier versions.
            return min(options["epochs"], options.get("stop_after") or math.inf) >= epochs
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False

    def has_data(self):
        """Return whether the folder contains a digest of the data. The run can then be resumed."""
        return (self.path / _DATA).exists()

    def remember_data(self, digest):
        """Store the digest of the data. Save the codec first: a run with a digest can be resumed."""
        write_text_atomically(self.file(_DATA), digest + "\n")

    def require_data(self, digest):
        """Raise `InputError` if the data have changed since the run was trained."""
        path = self.path / _DATA
        if path.exists() and path.read_text(encoding="utf-8", errors="replace").strip() != digest:
            raise InputError(
                f"{self.path}: the data have changed since this run was trained. Restore the data files, or train "
                "a new run."
            )


def digest_of(value):
    """Return a SHA-256 digest of nested containers, data classes, strings, numbers and arrays."""
    digest = hashlib.sha256()
    _feed(digest, value)
    return digest.hexdigest()


def _feed(digest, value):
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, set | frozenset):
        value = sorted(value)
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype} {value.shape}\n".encode())
        digest.update(np.ascontiguousarray(value).data)
    elif value is None or isinstance(value, str | bool | int | float | np.generic):
        digest.update(f"{value!r}\n".encode())
    elif isinstance(value, collections.abc.Sequence) and not isinstance(value, bytes | bytearray):
        digest.update(f"{len(value)} of\n".encode())
        for item in value:
            _feed(digest, item)
    else:
        raise TypeError(f"Data must consist of plain values and arrays. Received: {type(value).__name__}")


def write_text_atomically(path, text):
    """Write a UTF-8 file. If the process is killed or the disk is full, the old file remains."""
    with replacing(path) as temporary, open(temporary, "x", encoding="utf-8", newline="") as file:
        file.write(text)


def write_lines(path, lines):
    """Write lines to a text file, atomically."""
    write_text_atomically(path, "".join(f"{line}\n" for line in lines))


def write_json(path, value, indent=2):
    """Write plain values, NumPy arrays, paths and data classes as JSON, atomically.
    JSON cannot represent NaN and infinity, so they become null. With `indent=None`, the file is one line."""
    write_text_atomically(path, json.dumps(_plain(value), indent=indent, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def replacing(path):
    """Yield a temporary path beside `path`.
    If the block succeeds, the temporary file replaces `path`. Otherwise, it is deleted. The message of an `OSError`
    names `path`, not the temporary file."""
    path = pathlib.Path(path)
    temporary = path.with_name(f"{_TEMPORARY}{os.getpid()}-{path.name}")
    try:
        temporary.unlink(missing_ok=True)
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise
    finally:
        # On a read-only disk, deleting raises a second error, which would hide the first error.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read_config(path):
    try:
        config = yaml.safe_load((path / "config.yaml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"{path / 'config.yaml'} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise InputError(f"{path / 'config.yaml'} does not contain the options of a run.")
    return config


def _dump(config):
    return yaml.safe_dump(_plain(config, "constants"), sort_keys=False, allow_unicode=True, width=120)


def _words(options, name):
    return repr(options[name]) if name in options else "nothing"


def _plain(value, inf_nan="null"):
    """Convert a value to JSON types: data classes to dictionaries, arrays to lists, paths to strings."""
    return to_jsonable_python(value, fallback=lambda array: array.tolist(), inf_nan_mode=inf_nan)
