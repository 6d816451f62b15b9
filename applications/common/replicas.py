"""Training with several replicas: the strategy of a run, and what its workers must agree on.

Every worker runs the whole program: it reads the data, fits the codec, builds the model and takes part in each step,
with the same callbacks. Only their folders differ: the first worker writes into the folder of the run, the others into
temporary folders. `agree` is a barrier: all workers read the folder of a resumed run before the first one changes it.
See tests/applications/common/test_replicas.py.
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
    """Return the `tf.distribute.Strategy` of `FitOptions.strategy`, one per process. Call it before any computation.

    With several workers it returns once all of them have connected.
    """
    if kind == "multi_worker":
        print("waiting for the other workers of TF_CONFIG", flush=True)
        # TensorFlow waits indefinitely, ignoring Ctrl-C, and treats SIGTERM as a preemption notice.
        interrupted = signal.signal(signal.SIGINT, signal.SIG_DFL)
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        signal.signal(signal.SIGINT, interrupted)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return strategy
    if os.environ.get("TF_CONFIG"):
        print(f"TF_CONFIG is ignored because --strategy is {kind}: this process trains alone", flush=True)
    return tf.distribute.MirroredStrategy() if kind == "mirrored" else tf.distribute.get_strategy()


def worker_folder(path, keep=False):
    """Return a temporary folder for the files of a worker that is not the first. With `keep`, it contains a copy of the
    files of the run that is resumed."""
    temporary = tempfile.mkdtemp(prefix="worker-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    folder = pathlib.Path(temporary, "run")
    if keep:
        # A worker does not read the results of a finished run, nor the logs.
        shutil.copytree(path, folder, ignore=shutil.ignore_patterns("model.keras", "saved_model", "logs", "epochs"))
    return str(folder)


def agree(strategy, values):
    """Wait for the other workers of a strategy, if any, and raise `InputError` unless all workers have the same values.

    `values` is a dictionary from names, the same in all workers, to values or functions that return them. If the name
    begins with `--`, the error shows the value.
    """
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return
    texts = [repr(value() if callable(value) else value) for value in values.values()]
    digests = tf.constant([[int(hashlib.sha256(text.encode()).hexdigest()[:15], 16) for text in texts]], tf.int64)
    gathered = strategy.gather(digests, axis=0).numpy().T
    different = [index for index, worker_digests in enumerate(gathered) if len(set(worker_digests.tolist())) > 1]
    if different:
        # A second barrier, so that no worker exits before all of them have the digests.
        with contextlib.suppress(tf.errors.OpError):
            strategy.gather(digests, axis=0)
        names = [*values]
        shown = (f"{names[i]} (here {texts[i]})" if names[i].startswith("--") else names[i] for i in different)
        raise InputError(f"--strategy multi_worker: the workers differ in {'; '.join(shown)}.")


class SharedLog(keras.callbacks.Callback):
    """Copies the log of the first worker to all workers, so that they take the same decisions: losses may differ
    between workers in the last bit, and times differ anyway."""

    def __init__(self, strategy):
        super().__init__()
        self.strategy = strategy

    def on_epoch_end(self, epoch, logs=None):
        values = tf.constant([[float(x) for x in logs.values()]], tf.float64)
        logs.update(zip(logs, self.strategy.gather(values, axis=0).numpy()[0].tolist(), strict=True))
