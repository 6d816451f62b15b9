"""Seeded faults: break the library on purpose, one fault at a time, and see which test notices.

    python tests/mutations.py            # all faults
    python tests/mutations.py training   # the faults whose name holds a word

Every fault is a textual patch on a copy of the library in a temporary folder. Prints a Markdown table; the exit status
is 1 if a fault survives its tests or if the tests fail without one.
"""

import concurrent.futures
import os
import pathlib
import queue
import re
import shutil
import subprocess
import sys
import tempfile

from faults import FAULTS

ROOT = pathlib.Path(__file__).resolve().parent.parent


def copy_project(folder):
    ignored = shutil.ignore_patterns("__pycache__", "benchmarks")
    for name in ("applications", "docs", "keras_vattn", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)


def run_python(folder, arguments):
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def run(folder, arguments):
    """Run pytest in the copy; returns whether it passed and the tests that failed."""
    result = run_python(folder, ["-m", "pytest", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", *arguments])
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", result.stdout, flags=re.MULTILINE)
    if result.returncode not in (0, 1) and not failed:
        raise SystemExit(result.stdout + result.stderr)
    return result.returncode == 0, failed


def file_of(fault, folder=ROOT):
    """Return the file that a fault is put into."""
    return folder / (fault.file if fault.file.startswith("applications/") else f"keras_vattn/{fault.file}")


def apply(fault, folder):
    """Return the file of the fault, and its text without."""
    path = file_of(fault, folder)
    text = path.read_text(encoding="utf-8")
    if text.count(fault.old) != 1:
        raise SystemExit(
            f"{fault.name}: the old text must be in {fault.file} once. Received: {text.count(fault.old)} times"
        )
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    return path, text


def outcomes(faults, folders):
    """Yield what `run` returns of each fault, in their order; every copy of the project holds one fault at a time."""
    free = queue.SimpleQueue()
    for folder in folders:
        free.put(folder)

    def outcome(fault):
        folder = free.get()
        try:
            path, text = apply(fault, folder)
            result = run(folder, ["-x", *fault.tests, "-k", fault.keyword])
            path.write_text(text, encoding="utf-8")
            return result
        finally:
            free.put(folder)

    executor = concurrent.futures.ThreadPoolExecutor(len(folders))
    try:
        yield from executor.map(outcome, faults)
    finally:
        executor.shutdown(cancel_futures=True)


def main(words):
    faults = [fault for fault in FAULTS if all(word in fault.name for word in words)]
    if not faults:
        raise SystemExit(f"No fault has all of these words in its name. Received: {' '.join(words)}")
    survivors = 0
    with tempfile.TemporaryDirectory() as name:
        processes = min(2, os.cpu_count(), len(faults))
        folders = [pathlib.Path(name).resolve() / str(index) for index in range(processes)]
        for folder in folders:
            copy_project(folder)
        origin = run_python(folder, ["-c", "import keras_vattn; print(keras_vattn.__file__)"]).stdout.strip()
        if not origin.startswith(str(folder)):
            raise SystemExit(f"The tests would not import the copy. Received: {origin}")
        files = sorted({file for fault in faults for file in fault.tests})
        workers = ["-n", str(processes)] if processes > 1 else []
        passed, failed = run(folder, [*workers, *files, "-k", " or ".join(f"({fault.keyword})" for fault in faults)])
        if not passed:
            raise SystemExit("The tests fail without a fault: " + ", ".join(failed))
        print("| fault | first failing test |", "|---|---|", sep="\n", flush=True)
        for fault, (passed, failed) in zip(faults, outcomes(faults, folders), strict=True):
            survivors += passed
            print(f"| {fault.name} | {'**survived**' if passed else f'`{failed[0]}`'} |", flush=True)
    print(f"\n{len(faults) - survivors} of {len(faults)} faults found.")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
