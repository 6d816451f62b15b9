"""Run folders: the files of a training run, for resuming it after a crash and for other commands."""

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
# The weights for the report; written after each epoch.
WEIGHTS = "weights.npz"
# The state of training.
CHECKPOINT = "checkpoints/checkpoint.npz"
# One row per epoch.
HISTORY = "history.csv"
# The codec, if it consists of plain values.
CODEC = "codec.json"


class RunFolder:
    """Folder of one training run, with a `config.yaml` in it; `open` starts or resumes a run, `load` reads one.

    Args:
        path: Folder of an existing run.
        config: Dictionary of plain values, the options of the run.

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
        """Start a run in a new or empty folder, or resume the run in it, and lock the folder for this process.

        Raises `InputError` if `check` does, or if another process writes to the folder.
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
        """Raise `InputError` if `open` would; return the stored options, or `None`.

        Args:
            path: Folder.
            config: Dictionary of options.
            resume: Whether the folder must already contain this run.
            may_differ: Names of options that a resumed run may change; their new values are stored.
            update: Function that adds the options missing in a config.yaml of an earlier version.
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
            # Through YAML, which turns tuples into lists.
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
        """Return the run in a folder; `InputError` if the folder contains no run."""
        config = _read_config(pathlib.Path(path))
        if config is None:
            raise InputError(f"{path} is not the folder of a run: it has no config.yaml.")
        return cls(path, config)

    def file(self, name):
        """Return the path of a file in the folder, and create its parent folder."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def num_epochs(self):
        """Return the number of epochs trained so far, including the epochs of the run that it started from."""
        rows = self.history() if (self.path / HISTORY).exists() else []
        return int(rows[-1]["epoch"]) if rows else 0

    def history(self):
        """Return the rows of history.csv, with `None` for empty cells; `InputError` if the file cannot be read."""
        path = self.path / HISTORY
        try:
            with open(path, encoding="utf-8", newline="") as file:
                rows = [
                    {name: float(value) if value else None for name, value in row.items()}
                    for row in csv.DictReader(file)
                ]
            if any(row.get("epoch") is None for row in rows):
                raise ValueError("a row has no epoch")
            return rows
        except (OSError, ValueError, TypeError, csv.Error) as error:
            raise InputError(f"{path} is damaged: {error}. Resume the run, which rewrites the file.") from error

    def require_weights(self):
        """Raise `InputError` if the run has not finished an epoch."""
        if not (self.path / WEIGHTS).exists():
            raise InputError(f"{self.path}: no epoch is finished, {WEIGHTS} is missing. Continue: train --resume.")

    def is_finished(self, epochs):
        """Return whether the run has a report for at least this many epochs."""
        try:
            options = json.loads((self.path / "metrics.json").read_text(encoding="utf-8"))["options"]
            # A run that is being continued still has the report for fewer epochs.
            # The option stop_after of earlier versions stopped a run before `epochs`.
            return min(options["epochs"], options.get("stop_after") or math.inf) >= epochs
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False

    def has_data(self):
        """Return whether the digest of the data is stored, so that the run can be resumed."""
        return (self.path / _DATA).exists()

    def remember_data(self, digest):
        """Store the digest of the data; this is the last file written before training."""
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
    """Return the digest of nested dictionaries, sets, lists, tuples, data classes, strings, numbers and arrays."""
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
    """Write a UTF-8 file. At any time the file is either the old one or the new one; a full disk leaves the old one."""
    with replacing(path) as temporary, open(temporary, "x", encoding="utf-8", newline="") as file:
        file.write(text)


def write_lines(path, lines):
    """Write a text file of lines, atomically."""
    write_text_atomically(path, "".join(f"{line}\n" for line in lines))


def write_json(path, value, indent=2):
    """Write plain values, NumPy numbers and arrays, paths and data classes as JSON, atomically. NaN and infinity, which
    JSON does not have, become null. With `indent=None` the file is one line."""
    write_text_atomically(path, json.dumps(_plain(value), indent=indent, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def replacing(path):
    """Yield a temporary path beside `path`. It replaces `path` if the block succeeds, and is deleted if it fails. An
    `OSError`, for instance for a full disk, names `path`."""
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
        # A second error, on a read-only disk, would hide the first one.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read_config(path):
    """Return the options of the run in a folder, or `None`."""
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
    """Return a value as dictionaries, lists, str, numbers, booleans and `None`; converts NumPy numbers and arrays,
    tuples, paths and data classes."""
    return to_jsonable_python(value, fallback=lambda array: array.tolist(), inf_nan_mode=inf_nan)
