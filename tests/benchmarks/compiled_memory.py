"""The memory of a training step of each program in graph mode and under XLA.

    PYTHONPATH=tests:. python -m benchmarks.compiled_memory [PROGRAM ...] [--options "--batch-size 32"]

Runs `train` on the built-in data until its first step, and takes two steps on one batch, in a process for each figure.
Figures are the peak of resident memory during a step, less what was resident before the first: MiB. The first step has
the trace and XLA's compiler too. Prints a table, and writes runs/benchmarks/compiled_memory.json.
"""

import argparse
import ctypes
import importlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path("runs/benchmarks")
# Options that keep short what comes before the first step.
PROGRAMS = {
    "ved": "--max-train-pairs 2000",
    "nmt": "--max-train-pairs 2000",
    "vqa": "--network pixels --num-scenes 100",
    "captioning": "--network pixels --num-scenes 100",
    "vrae": "",
    "graphs": "",
    "finetuning": "--pretraining-steps 1",
}


def measure(name, words):
    """Print the figures of one program as JSON."""
    from program_case import until_fit

    from benchmarks.paired import resident_memory

    program = importlib.import_module(f"applications.{name}.options").PROGRAM
    with tempfile.TemporaryDirectory() as folder:
        model, batches, _ = until_fit(program, ["train", "--out", f"{folder}/run", *words])
    batch = next(iter(batches))
    before, row = resident_memory("VmRSS"), {}
    for step in ("first", "second"):
        # What the compiler held is given back, and forgotten by the kernel.
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        start = time.perf_counter()
        model.train_on_batch(*batch)
        row |= {f"{step}_seconds": time.perf_counter() - start, step: resident_memory("VmHWM") - before}
    print(json.dumps(row))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--options", default="", help="words of train")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(*arguments.programs, arguments.options.split())
        return
    rows = {}
    for name in arguments.programs:
        for jit in ("off", "on"):
            options = f"--jit {jit} {PROGRAMS[name]} {arguments.options}"
            command = [sys.executable, "-m", "benchmarks.compiled_memory", name, "--measure", f"--options={options}"]
            printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            rows.setdefault(name, {})[jit] = json.loads(printed.splitlines()[-1])
        print(name, rows[name], flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    record = {"options": arguments.options, "rows": rows}
    (FOLDER / "compiled_memory.json").write_text(json.dumps(record, indent=2))
    print("| program | graph: first step, second | XLA: first step, second | second, XLA / graph |\n|---|---|---|---|")
    for name, row in rows.items():
        graph, xla = ([row[jit][step] for step in ("first", "second")] for jit in ("off", "on"))
        cells = f"{graph[0]:.0f}, {graph[1]:.0f}", f"{xla[0]:.0f}, {xla[1]:.0f}", f"{xla[1] / graph[1]:.2f}"
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
