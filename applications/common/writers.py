"""Locks run folders, one writing process at a time, and sets overwritten runs aside.

The lock is a `flock` of the folder itself: it adds no file, stays with a folder that is renamed, and the operating
system releases it when the process ends, however it ends. A file system without such locks refuses nobody. Nothing here
imports TensorFlow.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile

from applications.common.errors import InputError

# Descriptors of the folders that this process writes to.
_locked = []


def lock(path):
    """Lock a run folder for this process, until `unlock`; `InputError` if another process writes to it."""
    _locked.append(_flock(path, fcntl.LOCK_EX))


def require_unlocked(path):
    """Raise `InputError` if another process writes to a run folder."""
    if os.path.isdir(path):
        os.close(_flock(path, fcntl.LOCK_SH))


def unlock():
    """Release all locks of this process."""
    while _locked:
        os.close(_locked.pop())


def _flock(path, operation):
    """Return a descriptor that locks a folder."""
    # Python's descriptors are closed in programs that this process starts.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise InputError(
            f"{path} is being written by another process. Wait until it has ended, or choose another folder."
        ) from error
    except OSError:
        # Some network disks have no locks of folders.
        pass
    return descriptor


def require_writable(option, path):
    """Raise `InputError`, which names the option, if nothing can be written into a folder, which may not exist yet."""
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
    """Return where the run in a folder is while a new one is trained there."""
    path = pathlib.Path(path).absolute()
    return path.with_name(f"{path.name}.overwritten")


def set_aside(path):
    """Rename the folder of a run that is overwritten. It is deleted when a run in its place has finished.

    An unfinished run does not take the place of a finished one that was set aside before: it is deleted.
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
    """Delete the run that was set aside for the finished one in a folder, if it can be deleted."""
    aside = aside_of(path)
    if _is_run(aside):
        with contextlib.suppress(InputError, OSError):
            _delete(aside)


def _delete(folder):
    require_unlocked(folder)
    # config.yaml goes last: the rest of a folder still counts as a run after a kill.
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name == "config.yaml"):
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    folder.rmdir()


def require_aside_unused(path):
    """Raise `InputError` if something other than a run is where the run in a folder would be set aside."""
    aside = aside_of(path)
    if aside.exists() and not _is_run(aside):
        raise InputError(f"--overwrite: {aside}, the place for the old run, has something else; rename it.")


def _is_run(path):
    return (path / "config.yaml").exists()


def _is_finished(path):
    return (path / "metrics.json").exists()
