"""Peak memory of training on region features that are read from files, by the number of files; and how fast they are
read.

    PYTHONPATH=tests python -m benchmarks.region_memory [--files 1000 20000] [--steps 300] [--folder FOLDER]

Writes .npz files of 36 x 2048 float32, 295 kB each, into a temporary folder (in FOLDER, which needs 6 GB for 20,000),
and trains a tiny model on each number of them in a process of its own. The same images are then read as .npz, HDF5 and
.tsv, from files that the system has in memory. Writes runs/benchmarks/region_memory.json.
"""

import argparse
import base64
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

NUM_REGIONS, WIDTH, BATCH = 36, 2048, 64
# Images that are read of each format.
NUM_READ = 1000


def write_files(folder, first, last):
    """Write the files of images, no two the same."""
    generator = np.random.default_rng(first)
    boxes = np.tile(np.array([0.0, 0.0, 320.0, 240.0], np.float32), (NUM_REGIONS, 1))
    for number in range(first, last):
        x = generator.standard_normal((NUM_REGIONS, WIDTH), np.float32)
        np.savez(folder / f"{number}.npz", feat=x, bbox=boxes, image_w=640, image_h=480)


def write_others(folder, target):
    """Write the images of a folder as HDF5 and as .tsv."""
    from applications.vision.regions import open_regions, write_regions

    regions = open_regions(folder)
    write_regions(target / "features.h5", regions)
    with open(target / "features.tsv", "wb") as file:
        for row, each in enumerate(regions.ids):
            features, boxes, _ = regions.read([row], NUM_REGIONS)
            boxes = boxes * np.array([640, 480, 640, 480], np.float32)
            encoded = [base64.b64encode(x.tobytes()) for x in (boxes, features)]
            file.write(b"\t".join([each.encode(), b"640", b"480", str(NUM_REGIONS).encode(), *encoded]) + b"\r\n")


def train(folder, steps):
    """Train for so many steps; return seconds and peak memory in MB, before the features are opened and at the end."""
    import keras
    import tensorflow as tf

    from applications.vision.regions import open_regions, with_regions

    inputs = keras.Input((NUM_REGIONS, WIDTH), name="regions")
    hidden = keras.layers.Dense(32, "relu")(keras.layers.GlobalAveragePooling1D()(inputs))
    model = keras.Model([inputs], keras.layers.Dense(10)(hidden))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.train_on_batch(np.zeros((BATCH, NUM_REGIONS, WIDTH), np.float32), np.zeros(BATCH))
    before = peak()
    start = time.perf_counter()
    regions = open_regions(folder)
    opened = time.perf_counter() - start
    rows = tf.data.Dataset.range(len(regions)).shuffle(len(regions), seed=0).repeat()
    batches = rows.map(lambda row: ({"image": row}, row % 10)).batch(BATCH)
    start = time.perf_counter()
    model.fit(with_regions(batches, regions, NUM_REGIONS), steps_per_epoch=steps, epochs=1, shuffle=False, verbose=0)
    seconds = time.perf_counter() - start
    return {
        "files": len(regions),
        "peak before opening (MB)": before,
        "peak (MB)": peak(),
        "opening (s)": opened,
        "step (ms)": 1e3 * seconds / steps,
    }


def read(path):
    """Return how many images a second are read, in this thread alone and as batches of a dataset."""
    import tensorflow as tf

    from applications.vision.regions import open_regions, with_regions

    start = time.perf_counter()
    regions = open_regions(path)
    found = {"file": path.suffix or ".npz", "opening (s)": time.perf_counter() - start}
    rows = np.random.default_rng(0).permutation(len(regions))
    for name in ("first", "alone (images/s)"):
        start = time.perf_counter()
        for first in range(0, len(rows), BATCH):
            regions.read(rows[first : first + BATCH], NUM_REGIONS)
        found[name] = len(rows) / (time.perf_counter() - start)
    del found["first"]
    batches = with_regions(tf.data.Dataset.from_tensor_slices(({"image": rows},)).batch(BATCH), regions, NUM_REGIONS)
    start = time.perf_counter()
    for _ in batches:
        pass
    found["as a dataset (images/s)"] = len(rows) / (time.perf_counter() - start)
    return found


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_process(*arguments):
    """Return what this program prints last in a process of its own: memory is that of the one task."""
    command = [sys.executable, "-m", "benchmarks.region_memory", *map(str, arguments)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return json.loads(output.splitlines()[-1])


def table(rows):
    widths = {name: max(len(name), 8) for name in rows[0]}
    lines = [" ".join(f"{name:>{width}}" for name, width in widths.items())]
    for row in rows:
        cells = {name: f"{value:.1f}" if isinstance(value, float) else str(value) for name, value in row.items()}
        lines.append(" ".join(f"{cells[name]:>{width}}" for name, width in widths.items()))
    return "\n".join(lines)


def main(arguments):
    found = {"training": [], "reading": []}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = pathlib.Path(name, "images")
        folder.mkdir()
        written = 0
        for count in sorted(arguments.files):
            write_files(folder, written, count)
            written = count
            found["training"].append(in_process("--train", folder, "--steps", arguments.steps))
            print(table(found["training"][-1:]), flush=True)
        few = pathlib.Path(name, "few")
        few.mkdir()
        write_files(few, 0, NUM_READ)
        in_process("--write", few)
        for path in (few, few.parent / "features.h5", few.parent / "features.tsv"):
            found["reading"].append(in_process("--read", path))
    path = pathlib.Path("runs/benchmarks/region_memory.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2))
    print(f"\n{table(found['training'])}\n\n{table(found['reading'])}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, nargs="+", default=[1000, 20000])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--folder")
    parser.add_argument("--train", type=pathlib.Path)
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--read", type=pathlib.Path)
    options = parser.parse_args()
    if options.train:
        print(json.dumps(train(options.train, options.steps)))
    elif options.write:
        print(json.dumps(write_others(options.write, options.write.parent)))
    elif options.read:
        print(json.dumps(read(options.read)))
    else:
        main(options)
