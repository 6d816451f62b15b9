"""Pytest plugin, registered by conftest.py: two logical CPU devices, fixed seeds, and fewer garbage collections."""

import contextlib
import functools
import gc
import importlib
import os
import random
import unittest.mock

import hypothesis
import keras
import pytest
import tensorflow as tf
from tensorflow.python.eager.context import Context
from tensorflow.python.framework.ops import gradient_registry
from tensorflow.python.util import tf_stack

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
)
# Use one thread in each operation, so that rounding does not depend on how the tests are started.
tf.config.threading.set_intra_op_parallelism_threads(1)

# Graphs consist of millions of objects, so let the garbage collector run a fiftieth as often.
gc.set_threshold(50 * gc.get_threshold()[0], *gc.get_threshold()[1:])

# TensorFlow records the Python stack of each operation, only for error messages. This takes a tenth of the time of
# tracing, so all operations share one stack here.
_stack = tf_stack.extract_stack()
tf_stack.extract_stack = lambda stacklevel=1: _stack

# Hypothesis generates the same examples in every run, without a time limit per example.
hypothesis.settings.register_profile(
    "keras_vattn",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("keras_vattn")


# A new seed makes TensorFlow discard all kernels, and rebuilding them took a third of the suite. Here they remain until
# the end of a file. Kernels with random state (`tf.random.normal`, or TensorFlow Probability with an integer seed)
# would not restart with a new seed, so tests use pairs of integers as seeds.
_set_random_seed = keras.utils.set_random_seed


def _seed_and_keep_kernels(context, seed):
    context._seed, context._rng = seed, random.Random(seed)


@functools.wraps(_set_random_seed)
def set_random_seed(seed):
    with unittest.mock.patch.object(Context, "_set_global_seed", _seed_and_keep_kernels):
        _set_random_seed(seed)


keras.utils.set_random_seed = set_random_seed


@pytest.fixture(autouse=True)
def fixed_seed():
    """Give Python, NumPy and TensorFlow the same seeds at the start of every test."""
    set_random_seed(20180)


@pytest.fixture(autouse=True)
def restored_dtype_policy():
    """Restore the global dtype policy after every test."""
    policy = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(policy)


@contextlib.contextmanager
def traces_forgotten():
    """TensorFlow stores each traced `tf.custom_gradient` and its graph forever. When this context ends, remove the
    gradients that were traced in it, and all kernels."""
    registered = gradient_registry._registry
    before = set(registered)
    yield
    for name in registered.keys() - before:
        del registered[name]
    tf.random.set_seed(20180)
    gc.collect()


@pytest.fixture
def forgotten_traces():
    """Remove the graphs after the test, because one process should not hold the graphs of all tests of a file."""
    with traces_forgotten():
        yield


@pytest.fixture(autouse=True, scope="module")
def file_forgotten():
    """At the end of a test file, remove its traces and exclude all remaining objects from later garbage collections."""
    with traces_forgotten():
        yield
    gc.freeze()


@pytest.fixture(scope="session")
def two_replicas():
    """Return the only MirroredStrategy of the session: a second one would reuse its collective keys and fail."""
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


@pytest.fixture
def cudnn_masks(monkeypatch):
    """Pretend that there is a GPU. Record the masks that cuDNN would receive, and run Keras's own loop instead."""
    rnn, masks = importlib.import_module("keras.src.backend.tensorflow.rnn"), []

    def asked(*arguments):
        masks.append(arguments[6])
        if arguments[6] is not None:
            rnn._assert_valid_mask(arguments[6])
        raise NotImplementedError

    monkeypatch.setattr(rnn, "_is_gpu_available", lambda: True)
    monkeypatch.setattr(rnn, "_cudnn_lstm", asked)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: [kind])
    return masks


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    # Interleave the folders, because the code that XLA compiles for all files of one folder would fill the memory of a
    # process. Files with slow tests run first, so that no long file runs last.
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    places = {path: place % processes for place, path in enumerate(dict.fromkeys(item.path for item in items))}
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (places[item.path], item.path not in slow))
    in_browser = [item for item in items if item.get_closest_marker("browser")]
    if in_browser and (missing := importlib.import_module("browser").missing()):
        for item in in_browser:
            item.add_marker(pytest.mark.skip(reason=f"needs Chromium: {missing}"))
    if tf.config.list_physical_devices("GPU"):
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU and KERAS_VATTN_TEST_GPU=1"))


def pytest_collection_finish():
    # Objects of imported modules exist until the end of the session, so exclude them from garbage collection.
    gc.freeze()
