"""Memory, and time to the first step, of a translation model on millions of pairs.

    PYTHONPATH=tests:. python -m benchmarks.large_text [--pairs 50000 1000000 5000000] [--segmentation words]

Writes two files of sentences of 30 words. There are 30,000 different words; the frequency of a word is one over its
rank. `nmt train` takes twenty steps on each number of pairs in a process of its own, with 1,000 pairs of validation.
Writes runs/benchmarks/large_text_words.json.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks.paired import FOLDER

NUM_WORDS, HALF, POOL = 30_000, 15, 200_000


def write_pairs(folder, name, count, seed):
    """Write sentences of two halves, each from a pool, so that writing takes less than reading."""
    generator = np.random.default_rng(seed)
    shares = 1.0 / np.arange(1, NUM_WORDS + 1)
    words = np.array([f"w{np.base_repr(97 * rank, 36).lower()}" for rank in range(NUM_WORDS)])
    for side in ("src", "tgt"):
        chosen = generator.choice(NUM_WORDS, (POOL, HALF), p=shares / shares.sum())
        pool = [" ".join(row) for row in words[chosen]]
        with open(folder / f"{name}.{side}", "w", encoding="utf-8") as file:
            for start in range(0, count, POOL):
                halves = generator.integers(POOL, size=(min(POOL, count - start), 2)).tolist()
                file.writelines(f"{pool[first]} {pool[second]}\n" for first, second in halves)


def train(folder, segmentation):
    """Train in this process, and print a line when the first step is done."""
    import keras

    from applications.common.command_line import main
    from applications.nmt.options import PROGRAM

    start, fit = float(os.environ["START"]), keras.Model.fit

    class FirstStep(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 0:
                print(f"FIRST {time.time() - start} {time.process_time()}", flush=True)

    keras.Model.fit = lambda self, *data, callbacks=(), **options: fit(
        self, *data, callbacks=[FirstStep(), *callbacks], **options
    )
    files = [
        word
        for part in ("train", "valid")
        for side, ending in (("source", "src"), ("target", "tgt"))
        for word in (f"--{part}-{side}", str(folder / f"{part}.{ending}"))
    ]
    sizes = "--embedding-width 64 --encoder-units 64 --units 64 --attention-units 64 --vocabulary-size 8000"
    steps = "--max-steps 20 --batch-size 64 --decode-every 0 --no-export --epochs 1 --max-length 40"
    named = ["--model", "soft", "--out", str(folder / "run"), "--segmentation", segmentation]
    return main(PROGRAM, ["train", *named, *files, *sizes.split(), *steps.split()])


def measured(count, segmentation):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_pairs(folder, "train", count, 0)
        write_pairs(folder, "valid", 1000, 1)
        environment = os.environ | {"START": str(time.time()), "TMPDIR": str(folder)}
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.large_text", "--child", str(folder), "--segmentation", segmentation],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        output = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            raise SystemExit(f"training failed: {output}")
        first = next(line.split()[1:] for line in output.splitlines() if line.startswith("FIRST"))
        seconds, of_cpu = map(float, first)
        peak = usage.ru_maxrss / 2**20
        return {"pairs": count, "peak_gib": peak, "first_step_seconds": seconds, "first_step_cpu_seconds": of_cpu}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[50_000, 1_000_000, 5_000_000])
    parser.add_argument("--segmentation", default="words")
    parser.add_argument("--child")
    options = parser.parse_args(arguments)
    if options.child is not None:
        return train(pathlib.Path(options.child), options.segmentation)
    rows = []
    print("| pairs | peak, GiB | over the first | first step, s | of CPU, s |\n|---|---|---|---|---|", flush=True)
    for count in options.pairs:
        rows.append(measured(count, options.segmentation))
        row = rows[-1]
        over, seconds = row["peak_gib"] - rows[0]["peak_gib"], row["first_step_seconds"]
        print(
            f"| {count:,} | {row['peak_gib']:.2f} | {over:.2f} | {seconds:.0f} | {row['first_step_cpu_seconds']:.0f} |",
            flush=True,
        )
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"segmentation": options.segmentation, "rows": rows}, indent=1)
    (FOLDER / f"large_text_{options.segmentation}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
