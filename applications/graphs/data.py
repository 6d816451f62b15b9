"""Read graphs, split their nodes, and build batches.

Shapes: N nodes, D features, E edges, M nodes of a split.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from applications.common.batches import prefetched
from applications.common.errors import InputError
from applications.graphs.files import Graph, read_npz, read_tables
from applications.graphs.sampling import sampled_batches


@dataclasses.dataclass
class Part:
    """A split: a graph, and the indices of some of its nodes, int32 (M,)."""

    graph: Graph
    nodes: np.ndarray

    @property
    def labels(self):
        return self.graph.labels[self.nodes]

    @property
    def report(self):
        """Sizes of the graph and of this split, as in Table 6 of Fan et al. 2020."""
        graph = self.graph
        return {
            "nodes": len(self.nodes),
            "of the graph": len(graph.labels),
            "edges listed": graph.listed,
            "edges": len(graph.edges),
            "isolated nodes": len(graph.labels) - len(np.unique(graph.edges)),
            "features": graph.features.shape[1],
            "classes": len(graph.classes),
        }

    def num_batches(self, options):
        """Return the number of training steps per epoch."""
        return -(-len(self.nodes) // options.fit.batch_size) if options.sampling.neighbors else 1

    def batches(self, options, first_epoch=None):
        """Return batches of the full graph or, in training with `--neighbors`, of nodes and sampled neighbours."""
        if first_epoch is not None and options.sampling.neighbors:
            return sampled_batches(self, options, first_epoch)
        inputs = self.graph.inputs | {"targets": tf.constant(self.nodes)}
        if options.sampling.neighbors:
            # A model that trains on sampled neighbours also reads padding masks.
            counts = {"nodes_mask": len(self.graph.labels), "edges_mask": len(self.graph.edges)}
            inputs |= {name: tf.fill((count,), True) for name, count in counts.items()}
        batch = tf.data.Dataset.from_tensors((inputs, tf.constant(self.labels)))
        return prefetched(batch if first_epoch is None else batch.repeat())


def read(options):
    """Return a dictionary that maps the name of each split to its `Part`, for a training run."""
    origin, graph, splits = read_graph(options.graph)
    splits = _checked(origin, graph, _drawn_splits(options.graph, graph) if splits is None else splits)
    empty = np.setdiff1d(np.arange(len(graph.classes)), graph.labels)
    if empty.size:
        raise InputError(f"{origin}: expected nodes of every class. Received: none of class {graph.classes[empty[0]]}")
    return {name: Part(graph, nodes.astype(np.int32)) for name, nodes in splits.items()}


def read_other(options, evaluation, labelled=True):
    """Return a `Part` of the graph that a command's options name, or `None` if they name no graph. If `labelled`, the
    `Part` contains the nodes with a label. Otherwise, it contains all nodes."""
    if evaluation.npz is None and evaluation.nodes is None:
        return None
    files = {name: getattr(evaluation, name) for name in ("npz", "nodes", "edges")}
    graph = dataclasses.replace(options.graph, scale_features=options.graph.scaling, **files)
    origin, graph, _ = read_graph(graph, labelled)
    nodes = np.flatnonzero(graph.labels >= 0) if labelled else np.arange(len(graph.labels))
    if not nodes.size:
        raise InputError(f"{origin}: expected at least one labelled node; for nodes without labels, use `predict`.")
    return Part(graph, nodes.astype(np.int32))


def encode(options, codec, part, training=False):
    """Return a `Part` whose feature order, feature scale and class numbers match the codec. Raise `InputError` if the
    model was trained with other features, or without one of the classes."""
    graph, classes, columns = part.graph, codec["classes"], codec["columns"]
    features, labels = graph.features, graph.labels
    if columns and graph.columns not in (None, columns):
        if sorted(graph.columns) != sorted(columns):
            missing = [f"has no feature {name}" for name in columns if name not in graph.columns]
            unknown = [f"has an unknown feature {name}" for name in graph.columns if name not in columns]
            raise InputError(f"the graph {(missing + unknown)[0]}; the model expects {', '.join(columns)[:200]}.")
        features = np.ascontiguousarray(features[:, [graph.columns.index(name) for name in columns]])
    if features.shape[1] != codec["width"]:
        raise InputError(f"the graph has {features.shape[1]} features; the model expects {codec['width']}.")
    unknown = [name for name in graph.classes if name not in classes]
    if unknown:
        raise InputError(f"the graph has the class {unknown[0]}; the classes of the model are {', '.join(classes)}.")
    if codec["scaling"]:
        features = ((features - codec["scaling"]["mean"]) / codec["scaling"]["sd"]).astype(np.float32)
    if graph.classes != classes:
        labels = np.array([*(classes.index(name) for name in graph.classes), -1], np.int32)[labels]
    if features is not graph.features or labels is not graph.labels:
        graph = dataclasses.replace(graph, features=features, labels=labels, classes=classes, columns=columns)
    return Part(graph, part.nodes)


def read_graph(options, labelled=True):
    """Return the origin for error messages, the `Graph` that the `GraphOptions` select, and its splits. The splits are
    a dictionary, or `None` if the data define no splits. If `labelled`, a table of nodes must have labels."""
    if options.npz is not None:
        origin, (graph, splits) = options.npz, read_npz(options.npz)
    elif options.nodes is not None:
        origin, (graph, splits) = options.nodes, read_tables(options.nodes, options.edges, labelled)
    else:
        features, labels, edges = digits()
        origin, graph, splits = "the digits", Graph(features.astype(np.float32), edges, labels), None
    _check_arrays(origin, graph)
    features, edges, graph.listed = graph.features, graph.edges, len(graph.edges)
    if not options.directed:
        edges = np.concatenate([edges, edges[:, ::-1]])
    edges = np.unique(edges[edges[:, 0] != edges[:, 1]], axis=0)
    if not len(edges):
        raise InputError(f"{origin}: expected at least one edge between two nodes.")
    if options.scaling == "rows":
        sums = np.abs(features).sum(axis=1, keepdims=True)
        graph.features = np.divide(features, sums, out=np.zeros_like(features), where=sums > 0)
    if graph.classes is None:
        graph.classes = [str(number) for number in range(graph.labels.max(initial=-1) + 1)]
    graph.edges, graph.labels = edges.astype(np.int32), graph.labels.astype(np.int32)
    return origin, graph, splits


def digits(num_neighbors=8):
    """Return the features, labels and edges of the built-in graph. The nodes are scikit-learn's 1,797 handwritten
    digits, 8 x 8 pixels. The edges lead from each digit to its nearest neighbours."""
    import sklearn.datasets
    import sklearn.neighbors

    features, labels = sklearn.datasets.load_digits(return_X_y=True)
    edges = sklearn.neighbors.kneighbors_graph(features, num_neighbors).nonzero()
    return features, labels, np.stack(edges, axis=1)


def _check_arrays(origin, graph):
    """Raise `InputError` for non-finite features, missing labels, and edges to missing nodes."""
    count, labels, edges = len(graph.features), graph.labels, graph.edges
    wrong = np.argwhere(~np.isfinite(graph.features))
    if len(wrong):
        node, column = wrong[0]
        feature = column + 1 if graph.columns is None else graph.columns[column]
        raise InputError(f"{origin}: node {graph.name(node)}: expected feature {feature} to be a finite number.")
    if len(labels) != count:
        raise InputError(f"{origin}: expected a label for each of {count} nodes. Received: {len(labels)}")
    if labels.max(initial=-1) >= count:
        raise InputError(f"{origin}: expected labels below {count}, the number of nodes. Received: {labels.max()}")
    wrong = np.flatnonzero((edges < 0).any(axis=1) | (edges >= count).any(axis=1))
    if wrong.size:
        source, target = edges[wrong[0]]
        raise InputError(f"{origin}: edge {wrong[0]}, {source} to {target}: expected nodes from 0 to {count - 1}.")


def _drawn_splits(options, graph):
    """Return random splits as in Planetoid, with `train_per_class` training nodes per class."""
    if len(graph.classes) < 2:
        raise InputError(f"--train-per-class: expected labels of at least 2 classes. Received: {len(graph.classes)}")
    labelled = np.random.default_rng(0).permutation(np.flatnonzero(graph.labels >= 0))
    nodes_by_class = (labelled[graph.labels[labelled] == label] for label in range(len(graph.classes)))
    train = np.concatenate([nodes[: options.train_per_class] for nodes in nodes_by_class])
    rest, num_valid = labelled[~np.isin(labelled, train)], options.num_valid
    if len(rest) <= num_valid:
        raise InputError(
            f"--num-valid: expected fewer than the {len(rest)} labelled nodes outside the training split ({len(train)} "
            f"nodes), such as {max(1, len(rest) // 3)}. Received: {num_valid}"
        )
    parts = {"train": train, "valid": rest[:num_valid], "test": rest[num_valid : num_valid + options.num_test]}
    return {name: np.sort(nodes) for name, nodes in parts.items()}


def _checked(origin, graph, splits):
    """Return the splits without unlabelled nodes. Raise `InputError` for overlaps or unknown nodes."""
    all_nodes = np.concatenate(list(splits.values()))
    wrong = all_nodes[(all_nodes < 0) | (all_nodes >= len(graph.labels))]
    if wrong.size:
        raise InputError(f"{origin}: expected node numbers below {len(graph.labels)} in splits. Received: {wrong[0]}")
    nodes, counts = np.unique(all_nodes, return_counts=True)
    if (counts > 1).any():
        raise InputError(f"{origin}: expected no node in two splits. Received: {graph.name(nodes[counts > 1][0])}")
    parts = {name: nodes[graph.labels[nodes] >= 0] for name, nodes in splits.items()}
    for name in ("train", "valid"):
        if name not in parts:
            raise InputError(f"{origin}: expected a {name} split. Received: {', '.join(parts)}")
        if not len(parts[name]):
            raise InputError(f"{origin}: expected labelled nodes in the {name} split.")
    return {name: nodes for name, nodes in parts.items() if len(nodes)}
