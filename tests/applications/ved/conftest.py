"""One trained run for all tests of the application. What runs in a process of its own runs beside the other tests."""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest
from ved_cases import SOURCES, TARGETS, arguments_of, small_options

ROOT = pathlib.Path(__file__).parents[3]

# Counts the traces of the training step.
TRAIN = """
import sys, keras
from applications.common.command_line import run
from applications.ved.__main__ import COMMANDS

traces, train_step = [], keras.Model.train_step

def counting(model, data):
    traces.append(data)
    return train_step(model, data)

keras.Model.train_step = counting
status = run("ved", COMMANDS, sys.argv[1:])
print(f"RESULT{len(traces)}")
sys.exit(status)
"""

# Dies in the second batch of the second epoch.
KILLED = """
import os, signal, sys
from applications.common.command_line import run
from applications.ved import training
from applications.ved.__main__ import COMMANDS

class Kill(training.StopOnNaN):
    def on_train_batch_end(self, batch, logs=None):
        if (self._epoch, batch) == (1, 1):
            os.kill(os.getpid(), signal.SIGKILL)

training.StopOnNaN = Kill
sys.exit(run("ved", COMMANDS, sys.argv[1:]))
"""

# Knows neither Keras models nor this project.
SERVED = """
import json, sys
import tensorflow as tf, tensorflow_text

sources = tf.constant(json.loads(sys.argv[2]))
models = [tf.saved_model.load(sys.argv[1]) for _ in range(2)]
text = lambda tensor: [[s.decode() for s in row] if isinstance(row, list) else row.decode() for row in tensor]
score = models[0].score(sources, tf.constant(json.loads(sys.argv[3])))
result = {
    "generate": text(models[0].generate(sources).numpy().tolist()),
    "sample": [text(model.sample(sources, 3, 5).numpy().tolist()) for model in models],
    "other": text(models[0].sample(sources, 3, 6).numpy().tolist()),
    "log_likelihood": score["log_likelihood"].numpy().tolist(),
    "num_tokens": score["num_tokens"].numpy().tolist(),
    "signatures": sorted(models[0].signatures),
    "project": sorted(name for name in sys.modules if name.split(".")[0] in ("keras_vattn", "applications")),
}
print("RESULT" + json.dumps(result))
"""


class Processes:
    """Runs Python programs beside the tests, one after the other: the tests need a core too."""

    def __init__(self):
        self._executor = concurrent.futures.ThreadPoolExecutor(1)
        self._running = None

    def start(self, *arguments, folder, path=str(ROOT)):
        """Return the future of the exit status, standard output and standard error."""
        return self.then(self._run, [sys.executable, *arguments], folder, path)

    def then(self, function, *arguments):
        """Return the future of a function's result, called when what was started before has ended."""
        return self._executor.submit(function, *arguments)

    def stop(self):
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._running is not None:
            self._running.kill()

    def _run(self, command, folder, path):
        self._running = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        output, errors = self._running.communicate()
        return self._running.returncode, output, errors


@dataclasses.dataclass
class Trained:
    """A finished run of ved_vattn_mean, with its SavedModel."""

    path: pathlib.Path
    options: object
    output: str
    num_traces: int


@dataclasses.dataclass
class Resumed:
    """The same run, killed in its second epoch and resumed; the files and the checkpoint that the kill left."""

    path: pathlib.Path
    left: list
    checkpoint: pathlib.Path
    output: str


@pytest.fixture(scope="session")
def started(tmp_path_factory):
    """Starts the processes: the run's options, and futures by name."""
    folder, processes = tmp_path_factory.mktemp("ved"), Processes()
    options = small_options(folder)
    killed = dataclasses.replace(options, out=str(folder / "killed"), export=False)
    texts = json.dumps(SOURCES), json.dumps(TARGETS)
    futures = {
        "trained": processes.start("-c", TRAIN, "train", *arguments_of(options), folder=folder),
        "served": processes.start("-c", SERVED, f"{options.out}/saved_model", *texts, folder=folder, path=""),
        "killed": processes.start("-c", KILLED, "train", *arguments_of(killed), folder=folder),
        "left": processes.then(look_at, folder / "killed"),
        # By the program, as a user calls it.
        "resumed": processes.start("-m", "applications.ved", "train", *arguments_of(killed), "--resume", folder=folder),
    }
    yield options, futures
    processes.stop()


def look_at(folder):
    """Return the files of a killed run, and a copy of its checkpoint."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return files, shutil.copy(folder / "checkpoints" / "checkpoint.npz", folder.with_suffix(".npz"))


@pytest.fixture(scope="session")
def trained(started):
    options, futures = started
    output, _, num_traces = succeeded(futures["trained"]).partition("RESULT")
    return Trained(pathlib.Path(options.out), options, output, int(num_traces))


@pytest.fixture(scope="session")
def served(trained, started):
    """What the SavedModel said in a process of its own."""
    return json.loads(succeeded(started[1]["served"]).partition("RESULT")[2])


@pytest.fixture(scope="session")
def resumed(trained, started):
    killed, _, errors = started[1]["killed"].result()
    assert killed == -signal.SIGKILL, errors
    left, checkpoint = started[1]["left"].result()
    output = succeeded(started[1]["resumed"])
    return Resumed(trained.path.parent / "killed", left, checkpoint, output)


def succeeded(future):
    """Return the standard output of a process."""
    status, output, errors = future.result()
    assert status == 0, errors
    return output
