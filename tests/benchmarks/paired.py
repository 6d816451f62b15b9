"""Interleaved timing: functions run in turn, so a drift of the machine's speed affects all of them."""

import json
import pathlib
import time

import numpy as np
import scipy.stats

FOLDER = pathlib.Path("runs/benchmarks")


def median_interval(values, confidence=0.95):
    """Return the median with the distribution-free interval between two order statistics."""
    values = np.sort(np.asarray(values, np.float64))
    low, high = scipy.stats.binom.interval(confidence, len(values), 0.5)
    return float(np.median(values)), float(values[int(low)]), float(values[min(int(high), len(values) - 1)])


def interleave(functions, num_rounds=30, num_warm_up=3):
    """Call every function once per round, in turn, and return the seconds: a dictionary of arrays (num_rounds,)."""
    for _ in range(num_warm_up):
        for function in functions.values():
            function()
    seconds = {name: [] for name in functions}
    for round_number in range(num_rounds):
        names = list(functions)
        # The order alternates, so that neither side always follows the other.
        for name in names if round_number % 2 else reversed(names):
            start = time.perf_counter()
            functions[name]()
            seconds[name].append(time.perf_counter() - start)
    return {name: np.asarray(values) for name, values in seconds.items()}


def report(title, rows):
    """Print a table of (name, (median, low, high), unit) and write it to runs/benchmarks/."""
    print(f"\n{title}")
    for name, (median, low, high), unit in rows:
        print(f"  {name:58} {median:9.3f} [{low:.3f}, {high:.3f}] {unit}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    record = [
        {"name": name, "median": m, "low": low, "high": high, "unit": unit} for name, (m, low, high), unit in rows
    ]
    (FOLDER / f"{title.split(':')[0].replace(' ', '_')}.json").write_text(json.dumps(record, indent=2))


def resident_memory(field):
    """Return the memory of this process in MiB from /proc: `VmRSS` is the current size, `VmHWM` the peak.

    `getrusage` would report the peak of the parent after a fork.
    """
    line = next(line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024
