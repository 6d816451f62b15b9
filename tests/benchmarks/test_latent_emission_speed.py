"""Speed and memory of the latent emission over soft attention. Prints tables and asserts no time."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from benchmarks.latent_emission import BATCH, ROWS, SOURCE, STEPS, VOCABULARY, WIDTH, matrix_products, training_step
from benchmarks.paired import interleave, median_interval, report

SIZES = "B 6, T 25, S 25, V 14,000, width 768"
# Candidates of the forward products, and of the backward ones; the baseline has no backward pass.
PRODUCTS = {"soft": (1, 1), "sample": (2, 1), "enumerate": (SOURCE, SOURCE)}


@pytest.mark.parametrize("jit", [False, True])
def test_step_over_soft(jit):
    steps = {row: training_step(row, jit) for row in ROWS}
    seconds = interleave({**steps, "products of one candidate": matrix_products(1, 1)}, num_rounds=30)
    operations = 2 * BATCH * STEPS * WIDTH * VOCABULARY
    rate = 3 * operations / seconds["products of one candidate"]
    rows = [(row, median_interval(1e3 * seconds[row]), "ms") for row in ROWS]
    for row, (forward, backward) in PRODUCTS.items():
        products = forward + 2 * backward
        rows.append((f"{row} / soft", median_interval(seconds[row] / seconds["soft"]), "ratio"))
        rows.append((f"{row} / soft, by its {products} products", (products / 3,) * 3, "ratio"))
        rows.append((f"{row} / its products", median_interval(seconds[row] * rate / (products * operations)), "ratio"))
    rows.append(("rate of the products", median_interval(rate / 1e9), "Gflop/s"))
    report(f"latent emission step {'jit' if jit else 'graph'}: {SIZES}", rows)


def test_peak_memory():
    """Peak resident memory of a process that runs one step, less that before it; three processes a row."""
    root = pathlib.Path(__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root.parent)])}
    rows = []
    for row in ROWS:
        command = [sys.executable, "-m", "benchmarks.latent_emission", row]
        peaks = []
        for _ in range(3):
            printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
            peak, before = map(float, printed.split()[-2:])
            peaks.append(peak - before)
        rows.append((row, (float(np.median(peaks)), min(peaks), max(peaks)), "MiB"))
    logits = BATCH * STEPS * VOCABULARY * 4 / 2**20
    rows.append(("logits of one candidate, float32", (logits,) * 3, "MiB"))
    report(f"latent emission memory: {SIZES}, median [smallest, largest] of three processes", rows)
