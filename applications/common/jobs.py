"""Runs commands of a program in parallel processes, which share the cores and GPUs."""

import os
import queue
import runpy
import subprocess
import sys
import threading


class Jobs:
    """Runs commands of a `Program`, each in its own process, up to `num_jobs` at a time."""

    def __init__(self, program, num_jobs):
        self._program, self._free = program, queue.SimpleQueue()
        gpus = _gpus()
        for index in range(num_jobs):
            self._free.put(environment_of(gpus, num_jobs, index))

    def run(self, arguments, log):
        """Run a command and append its output to `log`. Return the exit status, negative for a signal."""
        environment = self._free.get()
        words = [sys.executable, "-m", "applications.common.jobs", self._program.name, *arguments]
        streams = {"stdin": subprocess.PIPE, "stderr": subprocess.STDOUT}
        try:
            with (
                open(log, "ab") as file,
                subprocess.Popen(words, stdout=file, env=os.environ | environment, **streams) as process,
            ):
                return process.wait()
        finally:
            self._free.put(environment)


def _gpus():
    """Return the ids of the GPUs, and hide the GPUs from this process."""
    import tensorflow as tf

    count = len(tf.config.list_physical_devices("GPU"))
    tf.config.set_visible_devices([], "GPU")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[:count] if visible else list(map(str, range(count)))


def environment_of(gpus, num_jobs, index):
    """Return the environment variables that give the job `index` its GPUs and its cores.
    If there are more jobs than GPUs, several jobs share one GPU."""
    threads = str(max(1, (os.cpu_count() or 1) // num_jobs))
    variables = dict.fromkeys(("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"), threads)
    if gpus:
        size = len(gpus) // num_jobs  # equal, so that all runs have the same number of replicas
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[index * size :][:size] or [gpus[index % len(gpus)]])
        if len(gpus) < num_jobs:
            variables["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    return variables


def _end_with_comparison():
    # If `compare` ends, its pipe to this process closes, and `read` returns.
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_comparison, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
