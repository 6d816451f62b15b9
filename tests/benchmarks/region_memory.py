"""Peak memory of training on region features that are read from a file, by the number of images; and how fast they are
read.

    PYTHONPATH=tests python -m benchmarks.region_memory [--images 1000 20000] [--steps 300] [--folder FOLDER]

Writes HDF5 files of images of 36 x 2048 float32, 295 kB each, into a temporary folder (in FOLDER, which needs 6 GB for
20,000), and trains a tiny model on each of them in a process of its own. Then one that the system has in memory is
read. Writes runs/benchmarks/region_memory.json.
"""

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

NUM_REGIONS, WIDTH, BATCH = 36, 2048, 64
# Images that are read.
NUM_READ = 1000


def write_file(path, count):
    """Write the features of so many images, no two the same."""
    from applications.vision.region_hdf5 import write_regions
    from applications.vision.regions import Regions

    class Random(Regions):
        def read_image(self, row, count):
            boxes = np.tile(np.array([0.0, 0.0, 0.5, 0.5], np.float32), (count, 1))
            return np.random.default_rng(row).standard_normal((count, WIDTH), np.float32), boxes

    ids = [str(number) for number in range(count)]
    write_regions(path, Random("random", ids, np.full(count, NUM_REGIONS), WIDTH))


def train(path, steps):
    """Train for so many steps; return seconds and peak memory in MB, before the features are opened and at the end."""
    import keras
    import tensorflow as tf

    from applications.vision.codec import RegionCodec
    from applications.vision.region_hdf5 import open_regions

    inputs = keras.Input((NUM_REGIONS, WIDTH), name="regions")
    hidden = keras.layers.Dense(32, "relu")(keras.layers.GlobalAveragePooling1D()(inputs))
    model = keras.Model([inputs], keras.layers.Dense(10)(hidden))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.train_on_batch(np.zeros((BATCH, NUM_REGIONS, WIDTH), np.float32), np.zeros(BATCH))
    before = peak()
    start = time.perf_counter()
    regions = open_regions(path)
    opened = time.perf_counter() - start
    rows = tf.data.Dataset.range(len(regions)).shuffle(len(regions), seed=0).repeat()
    batches = rows.map(lambda row: ({"image": row}, row % 10)).batch(BATCH)
    start = time.perf_counter()
    batches = RegionCodec(WIDTH, NUM_REGIONS).with_regions(batches, regions)
    model.fit(batches, steps_per_epoch=steps, epochs=1, shuffle=False, verbose=0)
    seconds = time.perf_counter() - start
    return {
        "images": len(regions),
        "peak before opening (MB)": before,
        "peak (MB)": peak(),
        "opening (s)": opened,
        "step (ms)": 1e3 * seconds / steps,
    }


def read(path):
    """Return how many images a second are read, in this thread alone and as batches of a dataset."""
    import tensorflow as tf

    from applications.vision.codec import RegionCodec
    from applications.vision.region_hdf5 import open_regions

    start = time.perf_counter()
    regions = open_regions(path)
    found = {"opening (s)": time.perf_counter() - start}
    rows = np.random.default_rng(0).permutation(len(regions))
    for name in ("first", "alone (images/s)"):
        start = time.perf_counter()
        for first in range(0, len(rows), BATCH):
            regions.read(rows[first : first + BATCH], NUM_REGIONS)
        found[name] = len(rows) / (time.perf_counter() - start)
    del found["first"]
    batches = tf.data.Dataset.from_tensor_slices(({"image": rows},)).batch(BATCH)
    batches = RegionCodec(WIDTH, NUM_REGIONS).with_regions(batches, regions)
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
        for count in sorted(arguments.images):
            path = pathlib.Path(name, f"{count}.h5")
            write_file(path, count)
            found["training"].append(in_process("--train", path, "--steps", arguments.steps))
            print(table(found["training"][-1:]), flush=True)
        path = pathlib.Path(name, "few.h5")
        write_file(path, NUM_READ)
        found["reading"].append(in_process("--read", path))
    path = pathlib.Path("runs/benchmarks/region_memory.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2))
    print(f"\n{table(found['training'])}\n\n{table(found['reading'])}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, nargs="+", default=[1000, 20000])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--folder")
    parser.add_argument("--train", type=pathlib.Path)
    parser.add_argument("--read", type=pathlib.Path)
    options = parser.parse_args()
    if options.train:
        print(json.dumps(train(options.train, options.steps)))
    elif options.read:
        print(json.dumps(read(options.read)))
    else:
        main(options)
