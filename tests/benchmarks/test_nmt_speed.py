"""Measures time and memory of the translation models with the sizes of Deng et al. 2018. Asserts nothing."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from applications.nmt import model as translation
from benchmarks.nmt_step import MODELS, matrix_products, product_shapes, training_step
from benchmarks.paired import interleave, median_interval, report

SIZES = {
    "A": "B 6, S 25, T 25, V 14,000, paper preset, Adam and clipping",
    "B": "B 32, S 13, T 14, V 5,500, widths of 256, Adam and clipping",
}


@pytest.mark.parametrize("setting", SIZES)
def test_step_over_soft(setting):
    steps = {model: training_step(model, setting) for model in MODELS}
    products = {
        (model, part): matrix_products(shapes)
        for model in MODELS
        for part, shapes in product_shapes(model, setting).items()
    }
    seconds = interleave({**steps, **products}, num_rounds=12)
    rows = []
    for model in MODELS:
        words = seconds[model, "words"]
        product_seconds = sum(values for name, values in seconds.items() if name[0] == model)
        rows.append((model, median_interval(1e3 * seconds[model]), "ms"))
        rows.append((f"{model} / soft", median_interval(seconds[model] / seconds["soft"]), "ratio"))
        rows.append((f"{model}, its matrix products", median_interval(1e3 * product_seconds), "ms"))
        rows.append((f"{model}, word products", median_interval(1e3 * words), "ms"))
        rows.append((f"{model} / its products", median_interval(seconds[model] / product_seconds), "ratio"))
    report(f"nmt step {setting}: {SIZES[setting]}", rows)


def test_step_of_every_model():
    seconds = interleave({model: training_step(model, "B") for model in translation.MODELS}, num_rounds=12)
    rows = [(f"{model} / soft", median_interval(seconds[model] / seconds["soft"]), "ratio") for model in seconds]
    report(f"nmt step of every model B: {SIZES['B']}", rows)


def peak_memory(*arguments, num_processes=3):
    """Return an array (num_processes, 2), in MiB: peak memory of the second and the first step, minus that before."""
    root = pathlib.Path(__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root.parent)])}
    peaks = []
    for _ in range(num_processes):
        command = [sys.executable, "-m", "benchmarks.nmt_step", *arguments]
        printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        *step_peaks, before = map(float, printed.split()[-3:])
        peaks.append([peak - before for peak in step_peaks])
    return np.asarray(peaks)


@pytest.mark.parametrize("setting", SIZES)
def test_peak_memory(setting):
    """Print the peak resident memory of two steps, minus the memory before them, from three processes per model."""
    rows, medians = [], {}
    for model in MODELS:
        peaks = peak_memory(model, setting).max(axis=1)
        medians[model] = float(np.median(peaks))
        rows.append((model, (medians[model], min(peaks), max(peaks)), "MiB"))
        rows.append((f"{model} / soft", (medians[model] / medians["soft"],) * 3, "ratio"))
    report(f"nmt memory {setting}: {SIZES[setting]}, median [smallest, largest] of three processes", rows)


@pytest.mark.parametrize(
    ("model", "setting"), [("soft", "B"), ("marginal", "B"), ("variational_sample", "B"), ("soft", "A")]
)
def test_xla_over_graph(model, setting):
    kinds = {"graph": training_step(model, setting), "jit": training_step(model, setting, jit=True)}
    seconds = interleave(kinds, num_rounds=10)
    rows = [(f"{kind}", median_interval(1e3 * seconds[kind]), "ms") for kind in kinds]
    rows.append(("jit / graph", median_interval(seconds["jit"] / seconds["graph"]), "ratio"))
    peaks = {kind: peak_memory(model, setting, kind) for kind in kinds}
    for index, step in enumerate(("second step", "first step, the compiler included")):
        step_peaks = {kind: np.sort(x[:, index]) for kind, x in peaks.items()}
        rows += [(f"{kind}, {step}", tuple(x[[1, 0, 2]]), "MiB") for kind, x in step_peaks.items()]
        rows.append((f"jit / graph, {step}", (step_peaks["jit"][1] / step_peaks["graph"][1],) * 3, "memory"))
    report(f"nmt xla {model} {setting}: a step under XLA over a step in graph mode", rows)
