"""Seeded faults: break the library on purpose, one fault at a time, and see which test notices.

    python tests/mutations.py              # all faults, against the tests of both tiers
    python tests/mutations.py --fast       # against those of the default tier
    python tests/mutations.py training     # the faults whose name holds a word

Every fault is a textual patch on a copy of the library in a temporary folder. It is found where a test fails; where a
test cannot even begin, because of an import or a fixture, that is an error of the patch. Prints a Markdown table; the
exit status is 1 if a fault survives its tests, or is an error, or if the tests fail without one. With `--fast` a fault
survives that says why it needs the slow tier, and no other.
"""

import concurrent.futures
import importlib
import multiprocessing
import os
import pathlib
import queue
import re
import shutil
import sys
import tempfile
from typing import NamedTuple

import pytest
from faults import FAULTS

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Seconds after which a fault's tests hang.
LIMIT = 900
# A process of tests is a copy of one that has imported these, which takes longer than most tests.
PRELOADED = ["keras", "matplotlib.pyplot", "pytest", "sacrebleu", "scipy.stats", "sklearn.metrics"]
PRELOADED += ["tensorflow", "tensorflow_probability.python.distributions", "tensorflow_text", "tf_keras", "tyro"]


class Outcome(NamedTuple):
    """How a run of tests ended: `"passed"`, `"failed"`, `"error"` or `"none"`, where there was no test, and which test
    was the first to."""

    status: str
    test: str = ""


def copy_project(folder):
    ignored = shutil.ignore_patterns("__pycache__", "benchmarks")
    for name in ("applications", "docs", "keras_vattn", "tests", "tools"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for path in ROOT.glob("[!.]*"):
        if path.is_file():
            shutil.copy(path, folder)


def run_pytest(folder, arguments, writes_bytecode):
    """Run pytest in a copy of the project, and end this process with its status."""
    output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder)
    os.environ.update(PYTHONPATH=str(folder), PYTHONDONTWRITEBYTECODE="1")
    sys.dont_write_bytecode = not writes_bytecode
    sys.path[:] = [str(folder), *(x for x in sys.path if x not in (str(ROOT), str(ROOT / "tests")))]
    origin = importlib.util.find_spec("keras_vattn").origin
    if not origin.startswith(str(folder)):
        sys.exit(f"The tests would not import the copy. Received: {origin}")
    sys.exit(int(pytest.main(["-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", *arguments])))


def run(folder, arguments, fast, writes_bytecode=False):
    """Return the `Outcome` of tests in a copy of the project; those of both tiers unless `fast`."""
    arguments = ["-m", "not slow" if fast else "", *arguments]
    process = multiprocessing.get_context("forkserver").Process(
        target=run_pytest, args=(folder, arguments, writes_bytecode)
    )
    process.start()
    process.join(LIMIT)
    if process.is_alive():
        process.kill()
        process.join()
        return Outcome("error", f"no end in {LIMIT} s")
    return outcome_of(process.exitcode, (folder / "output.txt").read_text(encoding="utf-8", errors="replace"))


def outcome_of(status, output):
    """Return the `Outcome` of a pytest that ended with a status and wrote an output."""
    if status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return Outcome("none" if status else "passed")
    first = re.search(r"^(FAILED|ERROR) (\S+)", output, flags=re.MULTILINE)
    if first is None:
        return Outcome("error", (output.strip().splitlines() or [f"status {status}"])[-1])
    return Outcome("failed" if first[1] == "FAILED" else "error", first[2])


def file_of(fault, folder=ROOT):
    """Return the file that a fault is put into."""
    path = folder / fault.file
    return path if path.exists() else folder / "keras_vattn" / fault.file


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


def in_copies(function, folders, items):
    """Yield what a function of a copy of the project returns for each item, in order; a copy has one at a time."""
    free = queue.SimpleQueue()
    for folder in folders:
        free.put(folder)

    def result(item):
        folder = free.get()
        try:
            return function(folder, item)
        finally:
            free.put(folder)

    executor = concurrent.futures.ThreadPoolExecutor(len(folders))
    try:
        yield from executor.map(result, items)
    finally:
        executor.shutdown(cancel_futures=True)


def verdict(fault, outcome, fast):
    """Return whether all is well with a fault, and what the table says of it."""
    needed = fault.slow_because if fast else None
    if outcome.status == "error":
        return False, f"**error** {outcome.test}"
    if outcome.status == "failed":
        return needed is None, f"`{outcome.test}`" + (f" **without the slow tier**: {needed}" if needed else "")
    return needed is not None, f"slow: {needed}" if needed else "**survived**"


def main(words):
    fast, words = "--fast" in words, [word for word in words if word != "--fast"]
    faults = [fault for fault in FAULTS if all(word in fault.name for word in words)]
    if not faults:
        raise SystemExit(f"No fault has all of these words in its name. Received: {' '.join(words)}")
    # The environment of the tests, before TensorFlow is imported.
    importlib.import_module("conftest")
    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)
    together = {}
    for fault in faults:
        together.setdefault(fault.tests, []).append(f"({fault.keyword})")

    def without(folder, tests):
        return run(folder, [*tests, "-k", " or ".join(dict.fromkeys(together[tests]))], fast, writes_bytecode=True)

    def with_fault(folder, fault):
        path, text = apply(fault, folder)
        outcome = run(folder, ["-x", *fault.tests, "-k", fault.keyword], fast)
        path.write_text(text, encoding="utf-8")
        return outcome

    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folders = [pathlib.Path(name).resolve() / str(index) for index in range(min(2, os.cpu_count(), len(faults)))]
        for folder in folders:
            copy_project(folder)
        for outcome in in_copies(without, folders, together):
            if outcome.status not in ("passed", "none"):
                raise SystemExit(f"The tests fail without a fault: {outcome.test}")
        print("| fault | first failing test |", "|---|---|", sep="\n", flush=True)
        for fault, outcome in zip(faults, in_copies(with_fault, folders, faults), strict=True):
            is_well, text = verdict(fault, outcome, fast)
            wrong += not is_well
            print(f"| {fault.name} | {text} |", flush=True)
    print(f"\n{len(faults) - wrong} of {len(faults)} faults as expected.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
