"""Commands of a program in processes of their own, several at a time, each with its share of the machine."""

import concurrent.futures.process
import gc
import multiprocessing.connection
import os
import queue
import sys
import threading
import traceback

# TensorFlow never frees 50 to 200 MB of compiled code of a run.
RUNS_OF_A_PROCESS = 16


class Jobs:
    """Processes that run one command after the other; a context.

    Args:
        program: `Program`.
        num_jobs: Number of processes at the same time.
    """

    def __init__(self, program, num_jobs):
        self._program = program
        gpus = _gpus()
        self._environments = [environment_of(gpus, num_jobs, index) for index in range(num_jobs)]
        self._pools, self._free = [None] * num_jobs, queue.SimpleQueue()
        for index in range(num_jobs):
            self._free.put(index)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for pool in filter(None, self._pools):
            pool.shutdown()

    def run(self, arguments, log):
        """Run a command, its output at the end of the file `log`, and return its exit status.

        The status is `None` where the process ended before, by a signal for instance.
        """
        index = self._free.get()
        try:
            if self._pools[index] is None:
                self._pools[index] = concurrent.futures.ProcessPoolExecutor(
                    1,
                    multiprocessing.get_context("spawn"),
                    initializer=_start,
                    initargs=(self._environments[index],),
                    max_tasks_per_child=RUNS_OF_A_PROCESS,
                )
            return self._pools[index].submit(_command, self._program, arguments, log).result()
        except concurrent.futures.process.BrokenProcessPool:
            # The next command gets another process.
            self._pools[index] = None
            return None
        finally:
            self._free.put(index)


def _start(variables):
    """Set the environment of a process that ends when its parent does, however that ends."""
    os.environ.update(variables)

    def follow():
        multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _command(program, arguments, log):
    from applications.common.command_line import main

    with open(log, "a", encoding="utf-8") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    try:
        return main(program, arguments)
    except SystemExit as error:
        return error.code
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if "keras" in sys.modules:
            sys.modules["keras"].backend.clear_session()
            gc.collect()


def _gpus():
    """Return the names of the GPUs, as CUDA_VISIBLE_DEVICES has them, a list of str.

    This process leaves them to the processes that it starts: it would take their memory.
    """
    import tensorflow as tf

    count = len(tf.config.list_physical_devices("GPU"))
    tf.config.set_visible_devices([], "GPU")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[:count] if visible else list(map(str, range(count)))


def environment_of(gpus, num_jobs, index):
    """Return the environment variables of a job, a dictionary.

    A job has an equal share of the cores. It has GPUs of its own or, where there are more jobs than GPUs, shares one.

    Args:
        gpus: Names of the GPUs, as CUDA_VISIBLE_DEVICES has them.
        num_jobs: Number of jobs at the same time.
        index: Number of the job, from 0 on.
    """
    threads = str(max(1, (os.cpu_count() or 1) // num_jobs))
    variables = dict.fromkeys(("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"), threads)
    if gpus:
        share = len(gpus) // num_jobs  # the same for every job, so that runs under a strategy are alike
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[index * share :][:share] or [gpus[index % len(gpus)]])
        if len(gpus) < num_jobs:
            variables["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    return variables
