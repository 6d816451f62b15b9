"""Runs the default tests with several versions of Keras and TensorFlow, each in a fresh environment.

    python -m tools.try_versions [--keras 3.12 3.15] [--resolutions lowest] [--tests TEST ...]

Each version of Keras is tested twice: once with the lowest and once with the newest versions that `pyproject.toml`
allows for the other dependencies. The tool prints a table with one row per environment. The last column is the last
line of pytest's output. The folder `--logs` contains the whole output. The exit status is 1 if a test or an
installation fails. The tool requires `uv`, because pip cannot install the lowest versions.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

# {Keras: (TensorFlow, lowest KerasHub)}. KerasHub 0.25, for example, cannot quantize its embeddings with Keras 3.13.
PAIRS = {"3.12": ("2.19", "0.25"), "3.13": ("2.20", "0.26"), "3.14": ("2.21", "0.26"), "3.15": ("2.21", "0.26")}
PRINTED = ("keras", "tensorflow", "tensorflow-text", "numpy", "keras-hub", "matplotlib", "scikit-learn", "pytest")
RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}


def try_versions(python, keras, resolution, tests, logs):
    """Run tests in a new environment.
    Return the installed versions, the last line that pytest printed, and whether all tests passed."""
    log_file = logs / f"keras-{keras}-{resolution}.log"
    with tempfile.TemporaryDirectory() as folder, log_file.open("w", encoding="utf-8") as log:
        interpreter = pathlib.Path(folder) / "bin" / "python"
        options = {"check": True, "stdout": log, "stderr": subprocess.STDOUT}
        subprocess.run(["uv", "venv", "--python", python, folder], **options)
        install = ["uv", "pip", "install", "--compile-bytecode", "--python", interpreter]
        install += ["--resolution", RESOLUTIONS[resolution]]
        tensorflow, keras_hub = PAIRS[keras]
        bounds = f"keras=={keras}.*", f"tensorflow=={tensorflow}.*", f"keras-hub>={keras_hub}"
        subprocess.run([*install, "-e", ".[test]", *bounds], **options)
        freeze = subprocess.check_output(["uv", "pip", "freeze", "--python", interpreter], text=True)
        # Old packages call deprecated functions of newer dependencies.
        pytest = [interpreter, "-m", "pytest", "-n", "2", "-W", "default::DeprecationWarning"]
        passed = subprocess.run([*pytest, *tests], **{**options, "check": False}).returncode == 0
    last_line = log_file.read_text("utf-8").strip().splitlines()[-1].strip("= ")
    return dict(re.findall(r"^(\S+)==(\S+)$", freeze, re.M)), last_line, passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.11", help="version of Python, or path of an interpreter")
    parser.add_argument("--keras", nargs="+", default=list(PAIRS), choices=PAIRS)
    parser.add_argument("--resolutions", nargs="+", default=list(RESOLUTIONS), choices=RESOLUTIONS)
    parser.add_argument("--tests", nargs="+", default=[], help="tests to run; default: all that are not slow")
    parser.add_argument("--logs", type=pathlib.Path, default=pathlib.Path("runs/versions"))
    options = parser.parse_args()
    options.logs.mkdir(parents=True, exist_ok=True)
    print("| others |", " | ".join(PRINTED), "| tests |")
    print("|---|" + "---|" * (len(PRINTED) + 1), flush=True)
    status = 0
    for keras in options.keras:
        for resolution in options.resolutions:
            try:
                versions, last_line, passed = try_versions(
                    options.python, keras, resolution, options.tests, options.logs
                )
            except subprocess.CalledProcessError:
                versions, last_line, passed = {"keras": keras}, "could not be installed", False
            row = [resolution, *(versions.get(name, "") for name in PRINTED), last_line]
            print("|", " | ".join(row), "|", flush=True)
            status = status if passed else 1
    return status


if __name__ == "__main__":
    sys.exit(main())
