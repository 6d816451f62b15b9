"""What every process that runs tests begins with: TensorFlow on two logical CPU devices, fixed seeds, a frugal garbage
collector. A plugin of pytest, which conftest.py registers."""

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
# A core each, and the same sums in whatever way the tests are started.
tf.config.threading.set_intra_op_parallelism_threads(1)

# Graphs are millions of objects: the garbage collector looks at what is new once it is fifty times as much as usual.
gc.set_threshold(50 * gc.get_threshold()[0], *gc.get_threshold()[1:])

# Each operation of a graph would keep the stack of where it was made, which messages alone show: a tenth of the time of
# tracing. Here all of them have this one.
_stack = tf_stack.extract_stack()
tf_stack.extract_stack = lambda stacklevel=1: _stack

# The same examples in every run, however long one takes.
hypothesis.settings.register_profile(
    "keras_vattn",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("keras_vattn")


# TensorFlow forgets all kernels with a new seed, and making them again was a third of the suite. Here they stay until
# the end of a file. What keeps its random state in a kernel would go on with it: `tf.random.normal` and its like, and
# draws of TensorFlow Probability whose seed is an integer, so that tests seed these with pairs.
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
    """Every test starts from the same Python, NumPy and TensorFlow seeds."""
    set_random_seed(20180)


@pytest.fixture(autouse=True)
def restored_dtype_policy():
    """A test that changes the global dtype policy does not change it for the next one."""
    policy = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(policy)


@contextlib.contextmanager
def traces_forgotten():
    """TensorFlow registers each traced call of `tf.custom_gradient` for good, and the graph around it; here until the
    end of the context. Then its kernels go too."""
    registered = gradient_registry._registry
    before = set(registered)
    yield
    for name in registered.keys() - before:
        del registered[name]
    tf.random.set_seed(20180)
    gc.collect()


@pytest.fixture
def forgotten_traces():
    """The graphs of all tests of a file would be more than one process should hold."""
    with traces_forgotten():
        yield


@pytest.fixture(autouse=True, scope="module")
def file_forgotten():
    """The traces of a file go with it, and no later collection looks at what else it leaves behind."""
    with traces_forgotten():
        yield
    gc.freeze()


@pytest.fixture(scope="session")
def two_replicas():
    """The one MirroredStrategy of a test run: a second one reuses the first one's collective keys, and fails."""
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


@pytest.fixture
def cudnn_masks(monkeypatch):
    """As if there were a GPU: the masks that cuDNN would get, which it takes, and Keras's own loop in its place."""
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
    # Each process begins with files from everywhere, since what XLA compiles for the tests of one folder would be more
    # than one process should hold: files that have slow tests first, so that no long one is the last.
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
    # What the imports made stays as long as the session: the garbage collector need not look through it in every test.
    gc.freeze()
