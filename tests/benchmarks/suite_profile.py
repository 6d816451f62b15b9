"""Where the time of the test suite goes: CPU of each test, the garbage collector, and what was running, by kind.

    PYTHONPATH=tests pytest -p benchmarks.suite_profile     # each process writes runs/benchmarks/suite/NAME.json
    PYTHONPATH=tests python -m benchmarks.suite_profile     # prints the shares

The samples cost some twentieth of the time.
"""

import collections
import contextlib
import gc
import json
import os
import pathlib
import sys
import threading
import time

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "runs" / "benchmarks" / "suite"
INTERVAL = 0.02
# The first that is on the stack is what a sample counts for: a part of a file's path, and a function or `None`.
KINDS = {
    "processes of their own": ("subprocess.py", None),
    "import": ("importlib", "_find_and_load"),
    "tracing": ("func_graph.py", "func_graph_from_py_func"),
    "saving": ("sav", "save"),
    "XLA, kernels": ("execute.py", "quick_execute"),
}

tests, samples, collector = [], collections.Counter(), {"start": 0.0, "seconds": 0.0}


def kind_of(frame):
    stack = []
    while frame is not None:
        stack.append((frame.f_code.co_filename, frame.f_code.co_name))
        frame = frame.f_back
    for kind, (file, function) in KINDS.items():
        if any(file in path and function in (None, name) for path, name in stack):
            return kind
    return "Python: eager operations, building, checking"


def sample():
    main = threading.main_thread().ident
    while True:
        time.sleep(INTERVAL)
        # A frame may end while it is read, and what stood there is no frame.
        with contextlib.suppress(AttributeError):
            samples[kind_of(sys._current_frames().get(main))] += 1


def watch_collector(phase, _):
    if phase == "start":
        collector["start"] = time.perf_counter()
    else:
        collector["seconds"] += time.perf_counter() - collector["start"]


def cpu_seconds():
    return sum(os.times()[:4])


def pytest_configure(config):
    gc.callbacks.append(watch_collector)
    threading.Thread(target=sample, daemon=True).start()


def pytest_runtest_logstart(nodeid, location):
    tests.append([nodeid, cpu_seconds()])


def pytest_runtest_logfinish(nodeid, location):
    if tests and tests[-1][0] == nodeid:
        tests[-1][1] = cpu_seconds() - tests[-1][1]


def pytest_sessionfinish(session):
    # The process that only hands out the tests sees them finish too, but runs none.
    if not hasattr(session.config, "workerinput") and session.config.getoption("numprocesses", None):
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    name = os.environ.get("PYTEST_XDIST_WORKER", "main")
    result = {"tests": tests, "samples": samples, "collector": collector["seconds"], "cpu": cpu_seconds()}
    (FOLDER / f"{name}.json").write_text(json.dumps(result))


def main():
    runs = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
    total = sum(run["cpu"] for run in runs)
    print(f"CPU {total:.0f} s, the garbage collector {sum(run['collector'] for run in runs):.0f} s of it")
    kinds, rooms = collections.Counter(), collections.Counter()
    for run in runs:
        kinds.update(run["samples"])
        for nodeid, seconds in run["tests"]:
            rooms["/".join(nodeid.split("::")[0].split("/")[:2])] += seconds
    for title, shares in (("what was running", kinds), ("CPU by room", rooms)):
        print(f"\n{title}")
        for name, share in shares.most_common(20):
            print(f"  {name:50} {share / sum(shares.values()):6.1%}")


if __name__ == "__main__":
    main()
