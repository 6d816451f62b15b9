"""Creates the strategy for training on several replicas, and checks that all workers have the same options and data.

Every worker runs the whole program with the same callbacks. The first worker writes into the folder of the run; all
other workers write into temporary folders. The first worker changes a run's folder only after all workers have
called `agree`. See tests/applications/common/test_replicas.py.
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
    """Return the `tf.distribute.Strategy` for a value of `--strategy`. Call this before any computation.

    The result is cached. With several workers, the function returns only after all workers have connected.
    """
    if kind == "multi_worker":
        print("waiting for the other workers of TF_CONFIG", flush=True)
        # With Python's handler, Ctrl-C would not end the wait for other workers.
        interrupted = signal.signal(signal.SIGINT, signal.SIG_DFL)
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        signal.signal(signal.SIGINT, interrupted)
        # With the strategy's handler, SIGTERM would not end the program.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return strategy
    if os.environ.get("TF_CONFIG"):
        print(f"TF_CONFIG is ignored because --strategy is {kind}: this process trains alone", flush=True)
    return tf.distribute.MirroredStrategy() if kind == "mirrored" else tf.distribute.get_strategy()


def worker_folder(path, keep=False):
    """Return a temporary folder for a worker other than the first.
    If `keep` is true, copy the run in `path` into the folder, so that the worker can resume the run."""
    temporary = tempfile.mkdtemp(prefix="worker-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    folder = pathlib.Path(temporary, "run")
    if keep:
        shutil.copytree(path, folder, ignore=shutil.ignore_patterns("model.keras", "saved_model", "logs", "epochs"))
    return str(folder)


def agree(strategy, values):
    """Wait until all workers call this function. Raise `InputError` if their `values` differ.

    `values` is a dictionary with the same keys in all workers. If a value is a function, its result is compared.
    If a key begins with `--`, the error message shows the value.
    """
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return
    texts = [repr(value() if callable(value) else value) for value in values.values()]
    digests = tf.constant([[int(hashlib.sha256(text.encode()).hexdigest()[:15], 16) for text in texts]], tf.int64)
    gathered = strategy.gather(digests, axis=0).numpy().T
    different = [index for index, worker_digests in enumerate(gathered) if len(set(worker_digests.tolist())) > 1]
    if different:
        # Without this barrier, a worker could exit before all workers have received the digests.
        with contextlib.suppress(tf.errors.OpError):
            strategy.gather(digests, axis=0)
        names = [*values]
        shown = (f"{names[i]} (this worker: {texts[i]})" if names[i].startswith("--") else names[i] for i in different)
        raise InputError(f"--strategy multi_worker: the workers differ in {'; '.join(shown)}.")


class SharedLog(keras.callbacks.Callback):
    """Copies the first worker's log of each epoch to all workers.
    Without this copy, losses that differ in the last bit could stop the workers at different epochs."""

    def __init__(self, strategy):
        super().__init__()
        self.strategy = strategy

    def on_epoch_end(self, epoch, logs=None):
        values = tf.constant([[float(x) for x in logs.values()]], tf.float64)
        logs.update(zip(logs, self.strategy.gather(values, axis=0).numpy()[0].tolist(), strict=True))
