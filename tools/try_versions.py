"""Test the library with the lowest and the newest versions of its direct dependencies, each in a fresh environment.

    python -m tools.try_versions --python 3.11 3.12 3.13 [--tests TEST ...]

Prints a row of a table for each environment, with the last line of pytest; the whole output is beside it in LOGS. The
exit status is 1 if a test fails. `uv` has to be installed: it resolves to the lowest versions that pyproject.toml
allows, and pip does not.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

NAMED = ("tensorflow", "keras", "tensorflow-probability", "numpy", "keras-hub", "matplotlib")
RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}
TESTS = [
    "tests/test_docstrings.py",
    "tests/test_import.py",
    "tests/test_conversion.py",
    "tests/support/test_keras_private.py",
    "tests/plots",
    "tests/applications/graphs",
]


def try_one(python, which, tests, logs):
    """Return the versions that were installed, by name, the last line of pytest, and whether all tests passed."""
    log_file = logs / f"{pathlib.Path(python).name}-{which}.log"
    with tempfile.TemporaryDirectory() as folder, log_file.open("w", encoding="utf-8") as log:
        interpreter = pathlib.Path(folder) / "bin" / "python"
        uv = {"check": True, "stdout": log, "stderr": subprocess.STDOUT}
        subprocess.run(["uv", "venv", "--python", python, folder], **uv)
        install = ["uv", "pip", "install", "--python", interpreter, "--resolution", RESOLUTIONS[which]]
        subprocess.run([*install, "-e", ".[test]"], **uv)
        listed = subprocess.check_output(["uv", "pip", "freeze", "--python", interpreter], text=True)
        # The lowest versions of some packages call what the newest of the packages under them deprecate.
        pytest = [interpreter, "-m", "pytest", "-n", "2", "-W", "default::DeprecationWarning"]
        passed = subprocess.run([*pytest, *tests], **{**uv, "check": False}).returncode == 0
    outcome = log_file.read_text("utf-8").strip().splitlines()[-1].strip("= ")
    return dict(re.findall(r"^(\S+)==(\S+)$", listed, re.M)), outcome, passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=["3.11", "3.12", "3.13"], help="a version, or an interpreter")
    parser.add_argument("--versions", nargs="+", default=list(RESOLUTIONS), choices=RESOLUTIONS)
    parser.add_argument("--tests", nargs="+", default=TESTS)
    parser.add_argument("--logs", type=pathlib.Path, default=pathlib.Path("runs/versions"))
    options = parser.parse_args()
    options.logs.mkdir(parents=True, exist_ok=True)
    print("| Python | versions |", " | ".join(NAMED), "| tests |")
    print("|---|" + "---|" * (len(NAMED) + 2), flush=True)
    status = 0
    for python in options.python:
        for which in options.versions:
            try:
                versions, outcome, passed = try_one(python, which, options.tests, options.logs)
            except subprocess.CalledProcessError:
                versions, outcome, passed = {}, "could not be installed", False
            row = [python, which, *(versions.get(name, "") for name in NAMED), outcome]
            print("|", " | ".join(row), "|", flush=True)
            status = status if passed else 1
    return status


if __name__ == "__main__":
    sys.exit(main())
