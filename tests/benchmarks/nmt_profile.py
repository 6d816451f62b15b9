"""Where a training step of the translation models goes, by TensorFlow's own profiler.

Run as a program it prints a model's table, its matrix products alone beside it, and writes it to runs/benchmarks/:
`python -m benchmarks.nmt_profile MODEL SETTING [TITLE]`, with TF_NUM_INTRAOP_THREADS=1 for milliseconds of one thread.
"""

import collections
import pathlib
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf
from benchmarks.nmt_step import matrix_products, product_shapes, training_step
from benchmarks.paired import interleave, median_interval, report
from tensorflow.tsl.profiler.protobuf import xplane_pb2

STEPS = 5
# Part of the model: what the name of its operations holds. The gradient of the words is a conditional of its own.
PARTS = {
    "inference network, loops": ("inference_",),
    "encoder, loops": ("/encoder", "ward_encoder"),
    "decoder, loop": ("decoder_1/while", "gradient/decoder"),
    "words": ("words", "cond/then", "cond_1/then", "cond_2/then"),
    "Adam and clipping": ("adam", "clip", "global_norm"),
}


def operations(model, setting="A"):
    """Return seconds of wall time of a step, and those of its operations: a dictionary from name to seconds a step."""
    step = training_step(model, setting)
    for _ in range(3):
        step()
    seconds = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    found = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            for _ in range(STEPS):
                step()
        (path,) = pathlib.Path(folder).rglob("*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
    for plane in space.planes:
        for event in (event for line in plane.lines for event in line.events):
            name = plane.event_metadata[event.metadata_id].name
            # "path/of/the/operation:Kind"; what runs operations has another form.
            if "/" in name and name.rpartition(":")[2].isidentifier():
                found[name] += 1e-12 * event.duration_ps / STEPS
    return float(np.median(seconds)), found


def by_part(found):
    """Return the seconds of each part, the matrix products in a backward loop and their sums apart."""
    parts = collections.Counter()
    for name, seconds in found.items():
        path, _, kind = name.rpartition(":")
        part = next((part for part, words in PARTS.items() if any(word in path.lower() for word in words)), "the rest")
        if "loop" in part:
            backward = "backward" if "gradient" in path else "forward"
            part = f"{part}, {backward}: {'products' if 'MatMul' in kind else 'the rest'}"
        parts[part] += seconds
    return parts


def main(model, setting="A", title="nmt profile"):
    wall, found = operations(model, setting)
    rows = [("a step", (1e3 * wall,) * 3, "ms")]
    rows += [(part, (1e3 * seconds,) * 3, "ms") for part, seconds in by_part(found).most_common()]
    products = {part: matrix_products(shapes) for part, shapes in product_shapes(model, setting).items()}
    for part, seconds in interleave(products, num_rounds=8).items():
        rows.append((f"matrix products alone: {part}", median_interval(1e3 * seconds), "ms"))
    kinds = collections.Counter()
    for name, seconds in found.items():
        kinds[name.rpartition(":")[2]] += seconds
    rows += [(f"operation {kind}", (1e3 * seconds,) * 3, "ms") for kind, seconds in kinds.most_common(25)]
    report(f"{title} {model} {setting}: milliseconds of the operations of a step", rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
