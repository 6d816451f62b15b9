"""Locks run folders, so that one process at a time writes into each, and moves overwritten runs aside.

The lock is a `flock` on the folder itself: it adds no file, stays with a folder that is renamed, and the operating
system releases it when the process ends in any way. Some file systems have no such locks. This module does not import
TensorFlow.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile

from applications.common.errors import InputError

# File descriptors of the folders that this process has locked.
_locked = []


def lock(path):
    """Lock a run folder for this process, until `unlock`; `InputError` if another process is writing to it."""
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
    """Return a file descriptor that locks a folder."""
    # Subprocesses do not inherit the lock, because Python closes the descriptor in them.
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
    """Raise `InputError`, which names the option, if a folder cannot be written or created."""
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
    """Return the path to which the run in a folder is moved while a new run is trained there."""
    path = pathlib.Path(path).absolute()
    return path.with_name(f"{path.name}.overwritten")


def set_aside(path):
    """Rename the folder of a run that is overwritten. `delete_aside` deletes it when the new run has finished.

    If a finished run is already aside, an unfinished run in the folder is deleted instead.
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
    """Delete the run that was moved aside for the finished run in a folder, if possible."""
    aside = aside_of(path)
    if _is_run(aside):
        with contextlib.suppress(InputError, OSError):
            _delete(aside)


def _delete(folder):
    require_unlocked(folder)
    # Delete config.yaml last, so that the folder still counts as a run if the process is killed.
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name == "config.yaml"):
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    folder.rmdir()


def require_aside_unused(path):
    """Raise `InputError` if the path to which the run in a folder would be moved contains anything other than a run."""
    aside = aside_of(path)
    if aside.exists() and not _is_run(aside):
        raise InputError(f"--overwrite: the old run would be moved to {aside}, which is not a run; rename that.")


def _is_run(path):
    return (path / "config.yaml").exists()


def _is_finished(path):
    return (path / "metrics.json").exists()
