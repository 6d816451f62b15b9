"""Several replicas of a model: the strategy of a run, and what its workers have to agree on.

Every worker makes the run: it reads the data, fits the codec, builds the model and takes part in each step, so their
callbacks are the same too. What tells them apart is where they write: the first one into the folder of the run, the
others into one of their own, which is deleted. A run that is resumed is read by all of them before the first one
changes it, hence `agree`. Tested in tests/applications/test_workers.py.
"""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import shutil
import tempfile

import tensorflow as tf

from applications.common.errors import InputError


@functools.cache
def strategy_of(kind):
    """Return the `tf.distribute.Strategy` of `FitOptions.strategy`, one object a process; before anything is computed.

    With several workers it returns when all of them have come."""
    if kind == "multi_worker":
        return tf.distribute.MultiWorkerMirroredStrategy()
    return tf.distribute.MirroredStrategy() if kind == "mirrored" else tf.distribute.get_strategy()


def is_first(strategy):
    """Return whether this process writes the run: the only one, or the first of the workers of TF_CONFIG."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return True
    config = json.loads(os.environ["TF_CONFIG"])
    first = "chief" if config["cluster"].get("chief") else "worker"
    return (config["task"]["type"], int(config["task"]["index"])) == (first, 0)


def own_folder(path, keep=False):
    """Return a folder for what a worker writes that is not the first, with the files of a run that goes on."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="worker-"), "run")
    if keep and pathlib.Path(path).exists():
        # What a finished run leaves, and the logs, nobody reads here.
        shutil.copytree(path, folder, ignore=shutil.ignore_patterns("model.keras", "saved_model", "logs", "epochs"))
    return str(folder)


def agree(strategy, what, value):
    """Wait for the other workers, and raise `InputError` unless all of them have the same value, a str or a number."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return
    digest = tf.constant([int(hashlib.sha256(str(value).encode()).hexdigest()[:15], 16)], tf.int64)
    if len(set(strategy.gather(digest, axis=0).numpy().tolist())) > 1:
        # None leaves before all know.
        with contextlib.suppress(tf.errors.OpError):
            strategy.gather(digest, axis=0)
        raise InputError(f"--strategy multi_worker: the workers have not the same {what}.")
