"""Where a training step of the translation models goes, by TensorFlow's own profiler.

Run as a program it prints a model's table: `python -m benchmarks.nmt_profile MODEL SETTING`.
"""

import collections
import pathlib
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf
from benchmarks.nmt_step import training_step
from tensorflow.tsl.profiler.protobuf import xplane_pb2

STEPS = 5
# Part of the model: what the name of its operations holds. The gradient of the words is a conditional of its own.
PARTS = {
    "inference network, loops": ("inference_",),
    "encoder, loops": ("/encoder",),
    "decoder, loop": ("decoder_1/while",),
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
            backward = "backward" if "gradient_tape" in path else "forward"
            part = f"{part}, {backward}: {'products' if 'MatMul' in kind else 'the rest'}"
        parts[part] += seconds
    return parts


if __name__ == "__main__":
    wall, found = operations(*sys.argv[1:])
    print(f"{sys.argv[1]}: {1e3 * wall:.0f} ms a step; of its operations, which run on two threads")
    for part, seconds in by_part(found).most_common():
        print(f"{1e3 * seconds:8.1f} ms  {part}")
