"""Measures a training step of MultiHeadAttention, 8 heads of width 64, with and without query chunks.

    PYTHONPATH=tests python -m benchmarks.long_sequences [--lengths 1024 2048 4096 8192 16384] [--processes 7]

Peak memory is measured in a separate process, minus its memory before the first step. Lengths above 4096 are measured
only with chunks. Time ratios are measured at the longest length that is measured with and without chunks. A ratio is
a median over interleaved pairs of steps in one process, and then over several processes, because processes differ.
Writes runs/benchmarks/long_sequences.json, which includes the slope of log memory over log length.
"""

import argparse
import json
import resource
import subprocess
import sys

import numpy as np

from benchmarks.paired import FOLDER, interleave, median_interval

ROWS = {
    "softmax": {},
    "weibull": {"alignment": "weibull"},
    "weibull contextual": {"alignment": "weibull", "prior": "contextual"},
}
LONGEST_WHOLE = 4096
RATIOS = "chunks / no chunks", "causal / not causal, with chunks", "causal / causal mask as an array, with chunks"


def step_of(length, size, options, mask=None):
    """Return a function that runs a training step of the layer: forward, a loss with the KL, backward, SGD.

    Args:
        length: Number of queries, and of keys.
        size: Argument `query_chunk_size` of the layer.
        options: Further arguments of the layer.
        mask: `None`, "causal", or "given". The last passes the causal mask as an array, so the layer cannot skip keys.
    """
    import keras
    import tensorflow as tf

    import keras_vattn

    layer = keras_vattn.MultiHeadAttention(8, 64, query_chunk_size=size, **options)
    x = tf.random.stateless_normal((1, length, 512), (0, 1))
    layer.build(x.shape, x.shape)
    optimizer = keras.optimizers.SGD(1e-6)
    optimizer.build(layer.trainable_variables)
    call = {"use_causal_mask": mask == "causal"}
    if mask == "given":
        call["attention_mask"] = tf.linalg.band_part(tf.ones((1, length, length), "bool"), -1, 0)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            losses = [tf.reduce_mean(tf.square(layer(x, x, training=True, **call))), *layer.losses]
        optimizer.apply(tape.gradient(losses, layer.trainable_variables), layer.trainable_variables)
        return sum(losses)

    step.get_concrete_function()
    return lambda: step().numpy()


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def peak(length, size, name, mask=None):
    """Return two sizes in MB: the memory that two steps need at their peak, and the memory that tracing them needs."""
    step_of(8, 4, ROWS[name])  # import modules, and let TensorFlow allocate the memory that it allocates only once
    before = resident()
    step = step_of(length, size, ROWS[name], mask)
    traced = resident()
    step()
    step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - traced, traced - before


def ratios(length, size, name, num_pairs):
    """Return the three time ratios that `RATIOS` names, each a median over `num_pairs` pairs of steps."""
    chunked, unchunked = step_of(length, size, ROWS[name]), step_of(length, None, ROWS[name])
    causal, masked = (step_of(length, size, ROWS[name], mask) for mask in ("causal", "given"))
    pairs = (chunked, unchunked), (causal, chunked), (causal, masked)
    seconds = (interleave({"one": one, "other": other}, num_pairs, num_warm_up=1) for one, other in pairs)
    return [np.median(x["one"] / x["other"]) for x in seconds]


def in_process(measure, *arguments):
    """Call `measure`, which is `peak` or `ratios`, in a separate process; return its result."""
    call = json.dumps([measure.__name__, *arguments])
    command = [sys.executable, "-m", "benchmarks.long_sequences", "--only", call]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--size", default=None, help="`query_chunk_size`; by default that of auto")
    parser.add_argument("--processes", type=int, default=7)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--only", type=json.loads, help="run only this measurement, given in JSON")
    options = parser.parse_args()
    if options.only:
        measure, *arguments = options.only
        print(json.dumps({"peak": peak, "ratios": ratios}[measure](*arguments)))
        return
    from keras_vattn.layers.chunked_attention import LARGEST_CHUNK

    size_at = lambda length: int(options.size or LARGEST_CHUNK // length)  # noqa: E731
    short_lengths = [length for length in options.lengths if length <= LONGEST_WHOLE]
    record = {"peak": [], "slope": {}, "time": []}
    for name in options.rows:
        for length in options.lengths:
            calls = [(size_at(length), None), (size_at(length), "causal")]
            for size, mask in [(None, None), *calls] if length in short_lengths else calls:
                peaks = dict(zip(("MB", "graph MB"), in_process(peak, length, size, name, mask), strict=True))
                record["peak"].append({"row": name, "length": length, "size": size, "mask": mask} | peaks)
                print(record["peak"][-1], flush=True)
        for is_chunked in (False, True):
            points = [x for x in record["peak"] if x["row"] == name and not x["mask"] and bool(x["size"]) == is_chunked]
            if len(points) > 1:
                logs = np.log([[x["length"], x["MB"]] for x in points]).T
                record["slope"][f"{name}, {'chunks' if is_chunked else 'whole'}"] = np.polyfit(*logs, 1)[0]
    length = max(short_lengths)
    for name in options.rows:
        runs = [in_process(ratios, length, size_at(length), name, options.pairs) for _ in range(options.processes)]
        for ratio, process_ratios in zip(RATIOS, zip(*runs, strict=True), strict=True):
            median, low, high = median_interval(process_ratios)
            row = {"row": name, "length": length, "ratio": ratio, "median": median, "interval": [low, high]}
            record["time"].append(row | {"of each process": process_ratios})
            print(record["time"][-1], flush=True)
    print(record["slope"])
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "long_sequences.json").write_text(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
