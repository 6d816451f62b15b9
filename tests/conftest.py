"""Configures pytest: the number of processes, XLA's flags, and the plugin `tensorflow_session` in each process.

KERAS_VATTN_TEST_GPU=1 keeps the GPUs visible and runs the tests marked `gpu`.
"""

import importlib
import importlib.metadata
import os
import sys

import pytest

USES_GPU = os.environ.get("KERAS_VATTN_TEST_GPU") == "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
if not USES_GPU:
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

if os.environ["KERAS_BACKEND"] != "tensorflow":
    raise pytest.UsageError(
        f"keras_vattn needs the TensorFlow backend. Received: KERAS_BACKEND={os.environ['KERAS_BACKEND']!r}"
    )

# These flags halve the time to compile a small function: XLA skips the passes of LLVM and MLIR and generates code for
# one core. XLA's own passes still run. An unknown flag ends the process. Benchmarks use the default flags.
XLA_FLAGS = ["--xla_backend_optimization_level=0"]
if importlib.metadata.version("tensorflow").startswith("2.21."):
    XLA_FLAGS += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
if not any("benchmarks" in word for word in sys.argv):
    os.environ.setdefault("XLA_FLAGS", " ".join(XLA_FLAGS))


def pytest_xdist_auto_num_workers(config):
    """Return two processes for plain `pytest`, whose times are for two cores: more processes than cores cost each test
    a fifth more CPU. On eight cores use `pytest -n 8`. Selected tests run in the main process."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    return 2 if whole and config.option.capture != "no" and not USES_GPU else 0


def pytest_configure(config):
    config.addinivalue_line("markers", "browser: needs Chromium and its driver; skipped without them")
    # The controller process of pytest-xdist does not need TensorFlow.
    if "PYTEST_XDIST_WORKER" in os.environ or not config.getoption("numprocesses"):
        config.pluginmanager.register(importlib.import_module("tensorflow_session"))
    # Discard the messages of TensorFlow's import, which a worker would print after pytest's last line.
    config.pluginmanager.getplugin("capturemanager").read_global_capture()
