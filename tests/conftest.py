"""Test set-up: several processes for the whole suite, and what each of them begins with.

KERAS_VATTN_TEST_GPU=1 leaves the GPUs visible, for the tests marked `gpu`.
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

# XLA's own passes stay; what follows them, code for one core without LLVM's passes or MLIR's, is half of the time of a
# small function. A flag that a version of XLA does not know ends the process. A benchmark measures what users have.
XLA_FLAGS = ["--xla_backend_optimization_level=0"]
if importlib.metadata.version("tensorflow").startswith("2.21."):
    XLA_FLAGS += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
if not any("benchmarks" in word for word in sys.argv):
    os.environ.setdefault("XLA_FLAGS", " ".join(XLA_FLAGS))


def pytest_xdist_auto_num_workers(config):
    """Processes of `pytest` alone: two, since its times are for two cores. More processes than cores cost each test a
    fifth more CPU; on eight cores say `pytest -n 8`. What is asked for in particular runs in the one that is asked."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    return 2 if whole and config.option.capture != "no" and not USES_GPU else 0


def pytest_configure(config):
    config.addinivalue_line("markers", "browser: needs Chromium and its driver; skipped without them")
    # The process that hands out the tests has no use for TensorFlow.
    if "PYTEST_XDIST_WORKER" in os.environ or not config.getoption("numprocesses"):
        config.pluginmanager.register(importlib.import_module("tensorflow_session"))
    # What TensorFlow says when it is imported, which a worker would write after pytest's closing line.
    config.pluginmanager.getplugin("capturemanager").read_global_capture()
