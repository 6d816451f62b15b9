"""Locks run folders, so that only one process writes into a folder, and renames runs that are being overwritten.

The lock is a `flock` on the folder itself, and is released when the process ends. On file systems without `flock`,
folders are not locked. This module does not import TensorFlow.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile

from applications.common.errors import InputError

_locked = []


def lock(path):
    """Lock a run folder until `unlock`. Raise `InputError` if another process has locked it."""
    _locked.append(_flock(path, fcntl.LOCK_EX))


def require_unlocked(path):
    """Raise `InputError` if another process is writing to a run folder."""
    if os.path.isdir(path):
        os.close(_flock(path, fcntl.LOCK_SH))


def unlock():
    """Release all locks of this process."""
    while _locked:
        os.close(_locked.pop())


def _flock(path, operation):
    # Subprocesses do not inherit this descriptor, so they cannot hold the lock.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise InputError(
            f"{path} is being written by another process. Wait until it has ended, or choose another folder."
        ) from error
    except OSError:
        # Some network file systems cannot lock folders.
        pass
    return descriptor


def require_writable(option, path):
    """Raise an `InputError` that names `option` if a folder cannot be written or created."""
    path = pathlib.Path(path).absolute()
    if path.exists() and not path.is_dir():
        raise InputError(f"{option}: {path} is a file. Name a folder.")
    try:
        with tempfile.TemporaryFile(dir=next(filter(os.path.isdir, (path, *path.parents)))):
            pass
    except OSError as error:
        raise InputError(
            f"{option}: {path} cannot be written: {error.strerror or error}. Name another folder."
        ) from error


def aside_of(path):
    """Return the path where `--overwrite` keeps the old run until the new run has finished."""
    path = pathlib.Path(path).absolute()
    return path.with_name(f"{path.name}.overwritten")


def set_aside(path):
    """Rename the folder of a run that `--overwrite` replaces. `delete_aside` deletes the renamed run.

    If the run in `path` is unfinished and the run in `aside_of(path)` is finished, delete the unfinished run instead.
    """
    path, aside = pathlib.Path(path), aside_of(path)
    if not _is_run(path):
        return
    require_unlocked(path)
    if _is_finished(aside) and not _is_finished(path):
        _delete(path)
        return
    if _is_run(aside):
        _delete(aside)
    path.rename(aside)


def delete_aside(path):
    """Delete the run that `set_aside` renamed, if any. If this fails, the run remains."""
    aside = aside_of(path)
    if _is_run(aside):
        with contextlib.suppress(InputError, OSError):
            _delete(aside)


def _delete(folder):
    require_unlocked(folder)
    # Delete config.yaml last: without it, a partly deleted folder would no longer count as a run.
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name == "config.yaml"):
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    folder.rmdir()


def require_aside_unused(path):
    """Raise `InputError` if `aside_of(path)` exists and is not a run."""
    aside = aside_of(path)
    if aside.exists() and not _is_run(aside):
        raise InputError(f"--overwrite: cannot rename the old run, because {aside} exists. Rename that folder.")


def _is_run(path):
    return (path / "config.yaml").exists()


def _is_finished(path):
    return (path / "metrics.json").exists()
