"""Speed and memory of the translation models at the paper's sizes. Prints tables and asserts no time."""

import os
import pathlib
import subprocess
import sys

import numpy as np
from benchmarks.nmt_step import MODELS, PAPER, beam_search, matrix_products, product_shapes, training_step
from benchmarks.paired import interleave, median_interval, report

SIZES = "B 6, S 25, T 25, V 14,000, paper preset, Adam and clipping"


def test_step_over_soft():
    steps = {model: training_step(model) for model in MODELS}
    products = {
        (model, part): matrix_products(shapes) for model in MODELS for part, shapes in product_shapes(model).items()
    }
    seconds = interleave({**steps, **products}, num_rounds=12)
    rows = []
    for model in MODELS:
        words = seconds[model, "words"]
        of_model = sum(values for name, values in seconds.items() if name[0] == model)
        rows.append((model, median_interval(1e3 * seconds[model]), "ms"))
        rows.append((f"{model} / soft", median_interval(seconds[model] / seconds["soft"]), "ratio"))
        rows.append((f"{model}, its matrix products", median_interval(1e3 * of_model), "ms"))
        rows.append((f"{model}, those of the words", median_interval(1e3 * words), "ms"))
        rows.append((f"{model} / its products", median_interval(seconds[model] / of_model), "ratio"))
    report(f"nmt step: {SIZES}", rows)


def test_peak_memory():
    """Peak resident memory of a process that runs one step, less that before it; three processes a model."""
    root = pathlib.Path(__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root.parent)])}
    rows, medians = [], {}
    for model in MODELS:
        peaks = []
        for _ in range(3):
            command = [sys.executable, "-m", "benchmarks.nmt_step", model, "A"]
            printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
            peak, before = map(float, printed.split()[-2:])
            peaks.append(peak - before)
        medians[model] = float(np.median(peaks))
        rows.append((model, (medians[model], min(peaks), max(peaks)), "MiB"))
        rows.append((f"{model} / soft", (medians[model] / medians["soft"],) * 3, "ratio"))
    report(f"nmt memory: {SIZES}, median [smallest, largest] of three processes", rows)


def test_beam_search():
    rows = []
    for model in ("soft", "marginal"):
        for batch in (1, 32):
            seconds = interleave({"search": beam_search(model, batch)}, num_rounds=5)["search"]
            rows.append((f"{model}, batch {batch}", median_interval(batch / seconds), "sentences/s"))
    report(f"nmt beam search: 10 beams, {PAPER.steps + 1} steps, S 25, V 14,000, paper preset", rows)
