"""Runs the workers of a distributed run as processes on this machine.

Workers are forked from a process that has imported TensorFlow, because the import would take most of their time.
"""

import atexit
import contextlib
import importlib
import json
import multiprocessing
import os
import signal
import socket
import sys

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["keras_vattn", "applications.common.training", "applications.vqa.train"])


def run_workers(work, arguments, folder):
    """Call a function in one process per tuple of arguments; return the exit status and output of each process.

    Args:
        work: Function defined in a module.
        arguments: A tuple for each worker.
        folder: Working directory of the processes.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("localhost", 0))) for _ in arguments]
        addresses = [f"localhost:{x.getsockname()[1]}" for x in sockets]
    processes = []
    for index, worker_arguments in enumerate(arguments):
        config = json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})
        log = folder / f"worker_{index}.log"
        processes.append((FORKS.Process(target=_worker, args=(config, folder, log, work, worker_arguments)), log))
    try:
        for process, _ in processes:
            process.start()
        for process, _ in processes:
            process.join(timeout=300)
    finally:
        for process, _ in processes:
            process.kill()
            process.join()
    return [(process.exitcode, log.read_text()) for process, log in processes]


def _worker(config, folder, log, work, arguments):
    os.environ["TF_CONFIG"] = config
    os.chdir(folder)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    status = work(*arguments)
    # Call the exit functions, which a forked process would skip.
    atexit._run_exitfuncs()
    sys.exit(status)


def run_program(name, words, dies=None):
    """Run a command of a program and return its status. At `dies`, (epoch, step), the process kills itself."""
    from applications.common import command_line
    from applications.common.checkpoint import Checkpoint

    def die(checkpoint, batch, logs=None):
        if (checkpoint.epoch, checkpoint.step) == dies:
            os.kill(os.getpid(), signal.SIGKILL)

    Checkpoint.on_train_batch_begin = die
    return command_line.main(importlib.import_module(f"{name}.options").PROGRAM, words)
