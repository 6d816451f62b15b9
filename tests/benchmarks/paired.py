"""Times several functions alternately, so that a change in the speed of the machine affects all of them."""

import json
import pathlib
import time

import numpy as np
import scipy.stats

FOLDER = pathlib.Path("runs/benchmarks")


def median_interval(values, confidence=0.95):
    """Return (median, low, high): the interval lies between two order statistics, and is valid for any distribution."""
    values = np.sort(np.asarray(values, np.float64))
    low, high = scipy.stats.binom.interval(confidence, len(values), 0.5)
    return float(np.median(values)), float(values[int(low)]), float(values[min(int(high), len(values) - 1)])


def interleave(functions, num_rounds=30, num_warm_up=3):
    """Call every function once per round; return a dictionary from each name to an array of seconds (num_rounds,)."""
    for _ in range(num_warm_up):
        for function in functions.values():
            function()
    seconds = {name: [] for name in functions}
    for round_number in range(num_rounds):
        names = list(functions)
        # Reverse the order in every second round, so that no function always follows the same function.
        for name in names if round_number % 2 else reversed(names):
            start = time.perf_counter()
            functions[name]()
            seconds[name].append(time.perf_counter() - start)
    return {name: np.asarray(values) for name, values in seconds.items()}


def report(title, rows):
    """Print rows (name, (median, low, high), unit) as a table, and write them to runs/benchmarks/ as JSON."""
    print(f"\n{title}")
    for name, (median, low, high), unit in rows:
        print(f"  {name:58} {median:9.3f} [{low:.3f}, {high:.3f}] {unit}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    record = [
        {"name": name, "median": m, "low": low, "high": high, "unit": unit} for name, (m, low, high), unit in rows
    ]
    (FOLDER / f"{title.split(':')[0].replace(' ', '_')}.json").write_text(json.dumps(record, indent=2))


def resident_memory(field):
    """Return the memory of this process in MiB, from /proc. `field` is "VmRSS", the current size, or "VmHWM", the peak.

    `getrusage` is not used because, after a fork, it reports the peak of the parent.
    """
    line = next(line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024
