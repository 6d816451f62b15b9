"""One trained run for all tests of the application; what runs in another process is started beside it."""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import keras
import pytest
import tensorflow as tf
from ved_cases import SOURCES, TARGETS, arguments_of, call, small_options

ROOT = pathlib.Path(__file__).parents[3]

# Dies in the second batch of the second epoch, where the first argument says so.
TRAIN = """
import os, signal, sys
from applications.common.command_line import run
from applications.ved import training
from applications.ved.__main__ import COMMANDS

class Kill(training.StopOnNaN):
    def on_train_batch_end(self, batch, logs=None):
        if (self._epoch, batch) == (1, 1):
            os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[1] == "kill":
    training.StopOnNaN = Kill
sys.exit(run("ved", COMMANDS, sys.argv[2:]))
"""
KILL_AND_RESUME = """
import json, os, subprocess, sys
program, out, *arguments = sys.argv[1:]
train = lambda how, *more: subprocess.run([sys.executable, "-c", program, how, "train", *arguments, *more]).returncode
status = [train("kill")]
left = sorted(os.path.relpath(os.path.join(folder, name), out) for folder, _, names in os.walk(out) for name in names)
os.link(os.path.join(out, "checkpoints", "checkpoint.npz"), os.path.join(os.path.dirname(out), "killed.npz"))
status.append(train("finish", "--resume"))
print("RESULT" + json.dumps({"status": status, "left": left}))
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


@dataclasses.dataclass
class Trained:
    path: pathlib.Path
    options: object
    output: str
    traces: list
    killed: object
    served: object
    program: object


def start(arguments, folder, **options):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT), **options.pop("environment", {})}
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A finished run of ved_vattn_mean, with the SavedModel, and the processes that belong to it."""
    folder = tmp_path_factory.mktemp("ved")
    options = small_options(folder)
    out = folder / "killed"
    arguments = arguments_of(dataclasses.replace(options, out=str(out), export=False))
    killed = start(["-c", KILL_AND_RESUME, TRAIN, str(out), *arguments], ROOT)
    program = start(["-m", "applications.ved", "train", "--out", "new", "--train-table", "missing.tsv"], folder)
    traces, train_step = [], keras.Model.train_step

    def counting(model, data):
        traces.append(tf.nest.map_structure(lambda x: x.shape, data))
        return train_step(model, data)

    keras.Model.train_step = counting
    try:
        status, output, errors = call("train", *arguments_of(options))
    finally:
        keras.Model.train_step = train_step
        keras.config.set_dtype_policy("float32")
    assert status == 0, errors
    path = pathlib.Path(options.out)
    served = start(
        ["-c", SERVED, str(path / "saved_model"), json.dumps(SOURCES), json.dumps(TARGETS)],
        folder,
        environment={"PYTHONPATH": ""},
    )
    yield Trained(path, options, output, traces, killed, served, program)
    for process in (killed, served, program):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def served(trained):
    """What the SavedModel said in a process of its own."""
    output, errors = trained.served.communicate(timeout=120)
    assert trained.served.returncode == 0, errors
    return json.loads(output.partition("RESULT")[2])


@pytest.fixture
def eagerly():
    """Runs every tf.function step by step: at these sizes much faster than to trace it."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
