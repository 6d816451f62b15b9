"""Measures how time and memory of a two-layer graph attention network depend on the number of edges.

    PYTHONPATH=tests python -m benchmarks.graph_scale [--models gat wc] [--rounds 9] [--threads 1] [--jit] [--npz FILE]

An epoch consists of a training step and a validation step of `applications.graphs`, each on the whole graph. The graphs
are random. Two graphs have the size and the feature sparsity of Cora and PubMed; three have 10^4, 10^5 and 10^6 edges,
four edges per node, and 64 features. `--npz` measures other graphs, in the format of `train --npz`. Peak memory is
measured in a separate process for each graph and model. Times are measured in one process per graph, with the models in
turn. Writes runs/benchmarks/graph_scale.json.
"""

import argparse
import dataclasses
import json
import pathlib
import resource
import subprocess
import sys

import numpy as np

PATH = pathlib.Path("runs/benchmarks/graph_scale.json")


@dataclasses.dataclass
class Shape:
    """The size of a random graph. Each edge counts twice, once per direction; loops are not counted."""

    nodes: int
    edges: int
    width: int
    nonzero: float
    classes: int
    output_heads: int = 1


SHAPES = {
    "cora": Shape(2708, 10556, 1433, 0.0127, 7),
    "pubmed": Shape(19717, 88648, 500, 0.1, 3, output_heads=8),
    "1e4": Shape(2500, 10**4, 64, 1.0, 7),
    "1e5": Shape(25000, 10**5, 64, 1.0, 7),
    "1e6": Shape(250000, 10**6, 64, 1.0, 7),
}


def drawn(shape):
    """Return a random graph with the sizes in `shape`, its training nodes and its validation nodes."""
    from applications.graphs.data import Graph

    generator = np.random.default_rng(0)
    keys = np.empty(0, np.int64)
    while len(keys) < shape.edges // 2:
        few, many = np.sort(generator.integers(shape.nodes, size=(2, shape.edges)), axis=0)
        keys = np.unique(np.concatenate([keys, (few * shape.nodes + many)[few < many]]))
    keys = generator.permutation(keys)[: shape.edges // 2]
    ends = np.stack([keys // shape.nodes, keys % shape.nodes], axis=1)
    features = generator.random((shape.nodes, shape.width), np.float32)
    features *= generator.random((shape.nodes, shape.width), np.float32) < shape.nonzero
    edges = np.concatenate([ends, ends[:, ::-1]]).astype(np.int32)
    labels = generator.integers(shape.classes, size=shape.nodes).astype(np.int32)
    graph = Graph(features, edges, labels, [str(each) for each in range(shape.classes)])
    nodes = generator.permutation(shape.nodes).astype(np.int32)
    return graph, nodes[: 20 * shape.classes], nodes[20 * shape.classes :][:500]


def read(path):
    """Read an .npz file; return its graph, its training nodes and its validation nodes."""
    from applications.graphs import data
    from applications.graphs.options import GraphOptions, Options

    parts = data.read(Options(graph=GraphOptions(npz=path)))
    return parts["train"].graph, parts["train"].nodes, parts["valid"].nodes


def epochs(name, output_heads, models, jit):
    """Return a dictionary from each model to a function that runs one epoch; also return the graph."""
    import keras

    from applications.common.option_values import with_values
    from applications.graphs import model
    from applications.graphs.data import Part
    from applications.graphs.options import Options

    graph, *nodes = drawn(SHAPES[name]) if name in SHAPES else read(name)
    epoch_functions = {}
    for kind in models:
        options = with_values(Options(), {"model": kind, "output_heads": output_heads})
        codec = {"width": graph.features.shape[1], "classes": graph.classes}
        network = model.build(options, codec).training
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        network.compile(keras.optimizers.Adam(5e-3), loss, jit_compile=jit)
        train, valid = (iter(Part(graph, each).batches(options, 0)) for each in nodes)
        epoch_functions[kind] = _epoch(network, train, valid)
    return epoch_functions, graph


def _epoch(network, train, valid):
    network.make_train_function()
    network.make_test_function()

    def run():
        network.train_function(train)
        return network.test_function(valid)

    return run


def measure(name, output_heads, models, jit, rounds):
    """Return the milliseconds per epoch of each model, with intervals, and the memory of this process in MB."""
    import keras_vattn  # noqa: F401
    from benchmarks.paired import interleave, median_interval

    before = peak()
    run, graph = epochs(name, output_heads, models, jit)
    seconds = interleave(run, num_rounds=rounds, num_warm_up=2)
    return {
        "nodes": len(graph.labels),
        "edges": len(graph.edges),
        "milliseconds": {kind: median_interval(1e3 * each) for kind, each in seconds.items()},
        "before (MB)": before,
        "peak (MB)": peak(),
    }


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_process(arguments, name, models, rounds):
    command = [sys.executable, "-m", "benchmarks.graph_scale", "--graph", name, "--rounds", str(rounds)]
    command += ["--models", *models, "--threads", str(arguments.threads), *(["--jit"] if arguments.jit else [])]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(result.stdout.splitlines()[-1])


def main(arguments):
    record = {"threads": arguments.threads, "jit": arguments.jit, "graphs": {}}
    print(f"{'graph':10} {'nodes':>8} {'edges':>8} {'model':>6} {'ms an epoch':>24} {'us an edge':>10} {'MB':>6}")
    for name in arguments.npz or SHAPES:
        rounds = 3 if name == "1e6" else arguments.rounds
        row = in_process(arguments, name, arguments.models, rounds)
        row["peak"] = {}
        for kind in arguments.models:
            alone = in_process(arguments, name, [kind], 1)
            row["peak"][kind] = alone["peak (MB)"] - alone["before (MB)"]
            middle, low, high = row["milliseconds"][kind]
            interval, each = f"{middle:.1f} [{low:.1f}, {high:.1f}]", 1e3 * middle / row["edges"]
            shown = pathlib.Path(name).stem if arguments.npz else name
            counts = f"{shown:10} {row['nodes']:8} {row['edges']:8}"
            print(f"{counts} {kind:>6} {interval:>24} {each:10.2f} {row['peak'][kind]:6.0f}", flush=True)
        record["graphs"][name] = row
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(json.dumps(record, indent=2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", default=["gat", "wc"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jit", action="store_true")
    parser.add_argument("--npz", nargs="+")
    parser.add_argument("--graph")
    options = parser.parse_args()
    if options.graph:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(options.threads)
        tf.config.threading.set_inter_op_parallelism_threads(options.threads)
        heads = SHAPES[options.graph].output_heads if options.graph in SHAPES else 1
        print(json.dumps(measure(options.graph, heads, options.models, options.jit, options.rounds)))
    else:
        main(options)
