"""Records the software versions on which a result depends."""

import importlib.metadata
import pathlib
import platform
import subprocess

import keras_vattn

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def environment_record():
    """Return a dictionary with the versions of packages, "commit" and "uncommitted_changes".
    Outside of a Git checkout, the last two values are `None`."""
    names = ("keras", "tensorflow", "tensorflow_probability", "numpy")
    record = {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}}
    record["keras_vattn"] = keras_vattn.__version__
    # Without this check, a package installed inside another project would record the commit of that project.
    inside = _git("rev-parse", "--show-toplevel") == str(_ROOT)
    record["commit"] = _git("rev-parse", "--verify", "HEAD") if inside else None
    changes = _git("status", "--porcelain", "--untracked-files=no") if record["commit"] else None
    record["uncommitted_changes"] = None if changes is None else bool(changes)
    return record


def _git(*arguments):
    try:
        result = subprocess.run(
            ["git", "-C", _ROOT, *arguments], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
