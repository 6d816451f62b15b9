"""Kills training with SIGKILL at random moments, goes on with it each time, and compares what is left at the end with
an uninterrupted run, bit for bit: the weights, the state of the optimizer and of every generator, the losses.

    python -m benchmarks.kills applications.ved runs/kills --kills 10 -- --epochs 3 --checkpoint-steps 20
"""

import argparse
import csv
import json
import pathlib
import random
import shutil
import subprocess
import sys
import time

import numpy as np

# Seconds, and what is decoded beside them, may differ.
COMPARED = ("weights.npz", "checkpoints/checkpoint.npz")


def main():
    """Run the comparison that the command line describes; print a line for each kill and each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=float, default=6.0, help="seconds from the next checkpoint to a kill, at most")
    options, arguments = parser.parse_known_args()
    arguments = [argument for argument in arguments if argument != "--"]
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    train = [sys.executable, "-m", options.program, "train", "--no-export"]
    whole, killed = options.folder / "whole", options.folder / "killed"
    log = open(options.folder / "log.txt", "w")  # noqa: SIM115
    subprocess.run([*train, "--out", str(whole), *arguments], stdout=log, stderr=log, check=True)
    generator = random.Random(options.seed)
    begun, done = False, 0
    while done < options.kills:
        resume = ["--resume"] if begun else arguments
        process = subprocess.Popen([*train, "--out", str(killed), *resume], stdout=log, stderr=log)
        seconds = generator.uniform(0.0, options.most)
        # Every fifth is killed while it starts, the others a while after they have gone on.
        if done % 5:
            _wait_for_checkpoint(process, killed)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            done += 1
            begun = (killed / "config.yaml").exists()
            print(f"kill {done} after {seconds:.1f} s: {_state(killed)}", flush=True)
            continue
        print(f"it ended, with status {process.returncode}, before the kill after {seconds:.1f} s", flush=True)
        break
    if process.returncode != 0:
        subprocess.run(
            [*train, "--out", str(killed), *(["--resume"] if begun else arguments)], stdout=log, stderr=log, check=True
        )
    for name in COMPARED:
        with np.load(whole / name) as first, np.load(killed / name) as second:
            names = [key for key in first.files if key != "record"]
            same = sum(np.array_equal(first[key], second[key]) for key in names)
        print(f"{name}: {same} of {len(names)} arrays are bit-identical")
    rows = [list(csv.DictReader(open(folder / "history.csv"))) for folder in (whole, killed)]  # noqa: SIM115
    columns = [name for name in rows[0][0] if "seconds" not in name]
    print(
        f"history.csv: {sum(a[c] == b[c] for a, b in zip(*rows) for c in columns)} of {len(rows[0]) * len(columns)} "
        "figures are the same"
    )


def _wait_for_checkpoint(process, folder):
    path = folder / "checkpoints/checkpoint.npz"
    before = path.stat().st_mtime if path.exists() else None
    while process.poll() is None and (not path.exists() or path.stat().st_mtime == before):
        time.sleep(0.05)


def _state(folder):
    path = folder / "checkpoints/checkpoint.npz"
    if not path.exists():
        return "no checkpoint"
    with np.load(path) as archive:
        record = json.loads(archive["record"].tobytes())
    return (
        f"checkpoint of epoch {record['epoch']}, step {record['step']}, {time.time() - path.stat().st_mtime:.1f} s old"
    )


if __name__ == "__main__":
    main()
