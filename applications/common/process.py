"""What a training process does before anything else."""

import pathlib

import keras
import tensorflow as tf

from applications.common.errors import InputError


def set_up(options):
    """Set seeds, dtype policy and memory growth for this process; before any model is built."""
    if options.memory_growth:
        for device in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(device, True)
    keras.config.set_dtype_policy(options.precision)
    keras.utils.set_random_seed(options.seed)


def refuse_fewer_epochs(options):
    """Raise `InputError` if a run that is resumed has more epochs than are asked for."""
    history = pathlib.Path(options.out) / "history.csv"
    done = max(len(history.read_bytes().splitlines()) - 1, 0) if history.exists() else 0
    if options.epochs < done:
        raise InputError(f"--epochs: the run has {done} epochs already. Received: {options.epochs}")
