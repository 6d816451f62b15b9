"""Workers of a run: processes on this machine that train together."""

import contextlib
import json
import os
import socket
import subprocess
import sys

# A worker that is killed at the start of a training step: the words before those of the program say when.
DYING = """
import importlib, os, signal, sys
from applications.common import command_line
from applications.common.checkpoint import Checkpoint
epoch, step, name, *words = sys.argv[1:]

def die(checkpoint, batch, logs=None):
    if (checkpoint.epoch, checkpoint.step) == (int(epoch), int(step)):
        os.kill(os.getpid(), signal.SIGKILL)

Checkpoint.on_train_batch_begin = die
command_line.main(importlib.import_module(f"{name}.options").PROGRAM, words)
"""


def run_workers(words, folder, count=2):
    """Run a command in so many workers at once; return the status and the output of each.

    Args:
        words: Of the command, from `python` on; or a list of such for each of the workers.
        folder: What they have as working directory.
        count: Number of workers.
    """
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("localhost", 0))) for _ in range(count)]
        addresses = [f"localhost:{x.getsockname()[1]}" for x in taken]
    words = words if isinstance(words[0], list) else [words] * count
    processes = []
    for index in range(count):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = os.environ | {
            "TF_CONFIG": json.dumps(config),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONWARNINGS": "default",
        }
        with open(folder / f"worker_{index}.log", "w") as log:
            processes.append(
                subprocess.Popen([sys.executable, *words[index]], env=environment, stdout=log, stderr=log, cwd=folder)
            )
    try:
        statuses = [process.wait(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(status, (folder / f"worker_{index}.log").read_text()) for index, status in enumerate(statuses)]
