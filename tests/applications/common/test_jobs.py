"""Tests the processes of a comparison, and the cores and GPUs that each process gets."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from applications.common.jobs import Jobs, environment_of
from applications.ved.options import PROGRAM


@pytest.mark.parametrize(
    "gpus, num_jobs, visible, grows",
    [
        ((), 2, [None, None], False),
        (("0", "1"), 2, ["0", "1"], False),
        (("1", "4", "5", "7"), 2, ["1,4", "5,7"], False),
        (("2", "3"), 3, ["2", "3", "2"], True),
    ],
)
def test_gpus_are_divided(gpus, num_jobs, visible, grows):
    environments = [environment_of(list(gpus), num_jobs, index) for index in range(num_jobs)]
    assert [variables.get("CUDA_VISIBLE_DEVICES") for variables in environments] == visible
    assert {variables.get("TF_FORCE_GPU_ALLOW_GROWTH") for variables in environments} == {"true" if grows else None}


def test_a_command_that_fails_and_one_that_is_killed(tmp_path):
    """`run` returns the exit status of the command, or the negative number of the signal that killed it."""
    log, processes, statuses = tmp_path / "log", Jobs(PROGRAM, 1), []
    assert processes.run(["evaluate", "--run", str(tmp_path)], log) == 2
    assert "error: --run: must be the folder of a run" in log.read_text()
    os.mkfifo(tmp_path / "config")
    words = ["evaluate", "--config", str(tmp_path / "config")]
    thread = threading.Thread(target=lambda: statuses.append(processes.run(words, log)))
    thread.start()
    with open(tmp_path / "config", "w"):
        # The command now waits to read its options from the named pipe.
        (child,) = children_of(os.getpid())
        os.kill(int(child), signal.SIGKILL)
        thread.join()
    assert statuses == [-signal.SIGKILL]


def children_of(pid):
    """Return the ids of the child processes that run commands."""
    words = ["pgrep", "-P", str(pid), "-f", "applications.common.jobs"]
    return subprocess.run(words, capture_output=True, text=True).stdout.split()


@pytest.mark.slow
def test_a_process_does_not_outlive_the_comparison(tmp_path):
    os.mkfifo(tmp_path / "config")
    code = (
        "import sys\nfrom applications.common.jobs import Jobs\nfrom applications.ved.options import PROGRAM\n"
        "if __name__ == '__main__':\n    Jobs(PROGRAM, 1).run(['evaluate', '--config', sys.argv[1]], sys.argv[2])\n"
    )
    (tmp_path / "comparison.py").write_text(code)
    words = [sys.executable, tmp_path / "comparison.py", tmp_path / "config", tmp_path / "log"]
    comparison = subprocess.Popen(words, env=os.environ | {"PYTHONPATH": str(pathlib.Path(__file__).parents[3])})
    with open(tmp_path / "config", "w"):
        pids = children_of(comparison.pid)
        comparison.kill()
        comparison.wait()
        end = time.monotonic() + 30
        while time.monotonic() < end and any(is_alive(pid) for pid in pids):
            time.sleep(0.05)
        assert len(pids) >= 1 and not any(is_alive(pid) for pid in pids)


def is_alive(pid):
    state = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")
