"""The versions that a result depends on."""

import importlib.metadata
import pathlib
import platform
import subprocess

import keras_vattn


def environment_record():
    """Return the versions of Python and of packages, the commit of the checkout, and whether files differ from it; a
    dictionary with `None` for what there is not."""
    names = ("keras", "tensorflow", "tensorflow_probability", "numpy")
    record = {"python": platform.python_version(), **{name: _version(name) for name in names}}
    record["keras_vattn"] = keras_vattn.__version__
    root = pathlib.Path(__file__).resolve().parents[2]
    top = _git(root, "rev-parse", "--show-toplevel")
    # A file installed inside some other project's checkout has no commit of its own.
    inside = top is not None and pathlib.Path(top).resolve() == root
    record["commit"] = _git(root, "rev-parse", "--verify", "HEAD") if inside else None
    changes = _git(root, "status", "--porcelain", "--untracked-files=no") if record["commit"] else None
    record["uncommitted_changes"] = None if changes is None else bool(changes)
    return record


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(folder, *arguments):
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
