"""Several replicas of a model: the strategy of a run, and what its workers have to agree on.

Every worker makes the run: it reads the data, fits the codec, builds the model and takes part in each step, so their
callbacks are the same too. What tells them apart is where they write: the first one into the folder of the run, the
others into one of their own, which is deleted. A run that is resumed is read by all of them before the first one
changes it, hence `agree`. Tested in tests/applications/common/test_replicas.py.
"""

import atexit
import contextlib
import functools
import hashlib
import os
import pathlib
import shutil
import signal
import tempfile

import keras
import tensorflow as tf

from applications.common.errors import InputError


@functools.cache
def strategy_of(kind):
    """Return the `tf.distribute.Strategy` of `FitOptions.strategy`, one object a process; before anything is computed.

    With several workers it returns when all of them have come."""
    if kind == "multi_worker":
        print("waiting for the other workers of TF_CONFIG", flush=True)
        # TensorFlow waits without an end, and takes SIGTERM for the notice of a preemption.
        interrupted = signal.signal(signal.SIGINT, signal.SIG_DFL)
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        signal.signal(signal.SIGINT, interrupted)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return strategy
    if os.environ.get("TF_CONFIG"):
        print(f"TF_CONFIG is not read: --strategy is {kind}, and this process trains alone", flush=True)
    return tf.distribute.MirroredStrategy() if kind == "mirrored" else tf.distribute.get_strategy()


def worker_folder(path, keep=False):
    """Return a folder for what a worker writes that is not the first, with the files of a run that goes on."""
    temporary = tempfile.mkdtemp(prefix="worker-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    folder = pathlib.Path(temporary, "run")
    if keep:
        # What a finished run leaves, and the logs, nobody reads here.
        shutil.copytree(path, folder, ignore=shutil.ignore_patterns("model.keras", "saved_model", "logs", "epochs"))
    return str(folder)


def agree(strategy, values):
    """Wait for the other workers of a strategy, if it has any, and raise `InputError` unless all have the same values.

    `values` is a dictionary from names, the same in all workers, to values or functions that return them. The error
    shows the value of an option, whose name begins with `--`.
    """
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return
    texts = [repr(value() if callable(value) else value) for value in values.values()]
    digests = tf.constant([[int(hashlib.sha256(text.encode()).hexdigest()[:15], 16) for text in texts]], tf.int64)
    gathered = strategy.gather(digests, axis=0).numpy().T
    different = [index for index, worker_digests in enumerate(gathered) if len(set(worker_digests.tolist())) > 1]
    if different:
        # None leaves before all know.
        with contextlib.suppress(tf.errors.OpError):
            strategy.gather(digests, axis=0)
        names = [*values]
        shown = (f"{names[i]} (here {texts[i]})" if names[i].startswith("--") else names[i] for i in different)
        raise InputError(f"--strategy multi_worker: the workers have not the same {'; '.join(shown)}.")


class SharedLog(keras.callbacks.Callback):
    """Gives all workers the log of the first, so that they decide alike: what each computes by itself may differ in the
    last bit, and what its clock says does."""

    def __init__(self, strategy):
        super().__init__()
        self.strategy = strategy

    def on_epoch_end(self, epoch, logs=None):
        values = tf.constant([[float(x) for x in logs.values()]], tf.float64)
        logs.update(zip(logs, self.strategy.gather(values, axis=0).numpy()[0].tolist(), strict=True))
