"""Graphs from files, and the batches of a part of their nodes.

Shapes: N nodes, D features, E edges, M nodes of a part.
"""

import csv
import dataclasses
import functools
import io
import zipfile

import numpy as np
import scipy.sparse
import tensorflow as tf

from applications.common.errors import InputError
from applications.graphs.planetoid import read_planetoid
from applications.graphs.sampling import sampled_batches
from applications.text.readers import read_lines

PARTS = ("train", "valid", "test")


@dataclasses.dataclass
class Graph:
    """A graph.

    Attributes:
        features: float32 (N, D).
        edges: int32 (E, 2), each a source and a target, without self-loops, each once.
        labels: int32 (N,), -1 for unknown.
        classes: Names of the classes.
        names: Names of the nodes, or `None` where they are known by their numbers.
        listed: Number of edges in the file.
        scaling: Mean and standard deviation of each feature, before they were scaled by these, or `None`.
        columns: Names of the features, or `None` where they have none.
    """

    features: np.ndarray
    edges: np.ndarray
    labels: np.ndarray
    classes: list
    names: list | None = None
    listed: int = 0
    scaling: dict | None = None
    columns: list | None = None

    @functools.cached_property
    def inputs(self):
        """The tensors that a model sees."""
        return {"features": tf.constant(self.features), "edges": tf.constant(self.edges)}

    @property
    def unscaled(self):
        """The features before `scaling`."""
        if self.scaling is None:
            return self.features
        return self.features * np.array(self.scaling["sd"]) + self.scaling["mean"]

    def name(self, node):
        return str(node) if self.names is None else self.names[node]


@dataclasses.dataclass
class Part:
    """Some nodes of a graph, those of training for instance: int32 (M,)."""

    graph: Graph
    nodes: np.ndarray

    @property
    def labels(self):
        return self.graph.labels[self.nodes]

    @property
    def report(self):
        """What Table 6 of Fan et al. 2020 has."""
        graph = self.graph
        degrees = np.bincount(graph.edges[:, 1], minlength=len(graph.labels))
        return {
            "nodes": len(self.nodes),
            "of the graph": len(graph.labels),
            "edges listed": graph.listed,
            "edges": len(graph.edges),
            "isolated nodes": int(np.sum(degrees + np.bincount(graph.edges[:, 0], minlength=len(degrees)) == 0)),
            "features": graph.features.shape[1],
            "classes": len(graph.classes),
        }

    def num_batches(self, options):
        """Return how many training steps an epoch has."""
        return -(-len(self.nodes) // options.fit.batch_size) if options.sampling.neighbors else 1

    def batches(self, options, first_epoch=None):
        """Return batches, of the whole graph unless training draws neighbours."""
        if first_epoch is not None and options.sampling.neighbors:
            return sampled_batches(self, options, first_epoch)
        inputs = self.graph.inputs | {"targets": tf.constant(self.nodes)}
        if options.sampling.neighbors:
            # The model that is trained asks which of them are padding.
            ends = {"nodes_mask": len(self.graph.labels), "edges_mask": len(self.graph.edges)}
            inputs |= {name: tf.fill((count,), True) for name, count in ends.items()}
        batch = tf.data.Dataset.from_tensors((inputs, tf.constant(self.labels)))
        return batch if first_epoch is None else batch.repeat()


def load(options):
    """Return the parts of the graph that the options describe, a dictionary of `Part`."""
    given = options.graph
    place, graph, splits = read_graph(given)
    splits = _checked(place, graph, _drawn_splits(given, graph) if splits is None else splits)
    empty = np.setdiff1d(np.arange(len(graph.classes)), graph.labels)
    if empty.size:
        raise InputError(f"{place}: no node has the label {graph.classes[empty[0]]} of {len(graph.classes)} classes.")
    return {name: Part(graph, nodes.astype(np.int32)) for name, nodes in splits.items()}


def load_other(given, labelled=True):
    """Return all nodes of the graph that `GraphOptions` name, or all that have a label, a `Part`."""
    place, graph, _ = read_graph(given, labelled)
    nodes = np.flatnonzero(graph.labels >= 0) if labelled else np.arange(len(graph.labels))
    if not nodes.size:
        raise InputError(f"{place}: no node has a label, so there is nothing to report on; `predict` needs none.")
    return Part(graph, nodes.astype(np.int32))


def fitted(part, codec):
    """Return a part whose labels are numbered as those of the codec, its features in that order and on that scale;
    `InputError` where it has others."""
    part = _in_order(part, codec.get("columns"))
    graph, known = part.graph, {name: number for number, name in enumerate(codec["classes"])}
    if graph.features.shape[1] != codec["width"]:
        raise InputError(f"the graph has {graph.features.shape[1]} features; the model reads {codec['width']}.")
    unknown = [name for name in graph.classes if name not in known]
    if unknown:
        raise InputError(f"the graph has the class {unknown[0]}; the model knows {', '.join(codec['classes'])}.")
    if graph.scaling != codec.get("scaling"):
        # By the statistics of the graph that was trained on.
        scaled = ((graph.unscaled - codec["scaling"]["mean"]) / codec["scaling"]["sd"]).astype(np.float32)
        graph = dataclasses.replace(graph, features=scaled, scaling=codec["scaling"])
        part = Part(graph, part.nodes)
    if graph.classes == codec["classes"]:
        return part
    numbers = np.array([*(known[name] for name in graph.classes), -1], np.int32)
    return Part(dataclasses.replace(graph, labels=numbers[graph.labels], classes=codec["classes"]), part.nodes)


def _in_order(part, columns):
    """Return a part whose features stand in the order of these columns."""
    graph = part.graph
    if columns is None or graph.columns in (None, columns):
        return part
    if sorted(graph.columns) != sorted(columns):
        missing = [name for name in columns if name not in graph.columns]
        unknown = [name for name in graph.columns if name not in columns]
        said = f"has no feature {missing[0]}" if missing else f"has a feature {unknown[0]}"
        raise InputError(f"the graph {said}; the model reads {', '.join(columns)[:200]}.")
    order = [graph.columns.index(name) for name in columns]
    scaling = graph.scaling and {name: [values[place] for place in order] for name, values in graph.scaling.items()}
    features = np.ascontiguousarray(graph.features[:, order])
    return Part(dataclasses.replace(graph, features=features, scaling=scaling, columns=columns), part.nodes)


def read_graph(given, labelled=True):
    """Return the name of the file for errors, the `Graph` that the options describe, and splits or `None`; a table of
    nodes may have no labels unless it is to be `labelled`."""
    names = columns = None

    def number(labels):
        count = int(labels.max(initial=-1)) + 1
        if count > len(labels):
            raise InputError(f"{place}: the label {count - 1} is too large for {len(labels)} nodes.")
        return [str(each) for each in range(count)]

    if given.planetoid is not None:
        place = given.planetoid
        features, labels, edges, splits = read_planetoid(place)
        classes = number(labels)
    elif given.npz is not None:
        place = given.npz
        features, labels, edges, splits = read_npz(place)
        classes = number(labels)
    elif given.nodes is not None:
        place = given.nodes
        names, features, columns, labels, classes, splits = read_nodes(place, labelled)
        edges = read_edges(given.edges, {name: row for row, name in enumerate(names)})
    else:
        place = "the digits"
        features, edges, labels, splits = digits(given.num_neighbors)
        classes = number(labels)
    graph = _graph(given, place, features, edges, labels, classes, names, columns)
    if given.planetoid is not None:
        # An edge stands in the lists of both its ends.
        graph.listed //= 2
    return place, graph, splits


def digits(num_neighbors):
    """Return the graph of the nearest neighbours of scikit-learn's 1,797 handwritten digits, 8 x 8 pixels."""
    import sklearn.datasets
    import sklearn.neighbors

    found = sklearn.datasets.load_digits()
    neighbors = sklearn.neighbors.kneighbors_graph(found.data, num_neighbors)
    return found.data, np.stack(neighbors.nonzero(), axis=1), found.target, None


def _graph(given, place, features, edges, labels, classes, names, columns):
    """Return the `Graph` of arrays as they were read, checked."""
    count = features.shape[0]
    features = np.asarray(features.todense() if scipy.sparse.issparse(features) else features, np.float32)
    wrong = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if wrong.size:
        name = wrong[0] if names is None else names[wrong[0]]
        column = np.flatnonzero(~np.isfinite(features[wrong[0]]))[0]
        feature = column + 1 if columns is None else columns[column]
        raise InputError(f"{place}: node {name}: feature {feature} is no finite number.")
    if len(labels) != count:
        raise InputError(f"{place}: expected a label for each of {count} nodes. Received: {len(labels)}")
    wrong = np.flatnonzero((edges < 0).any(axis=1) | (edges >= count).any(axis=1))
    if wrong.size:
        source, target = edges[wrong[0]]
        raise InputError(
            f"{place}: edge {wrong[0]}, {source} to {target}, leads to a node that there is not; there are {count}."
        )
    listed = len(edges)
    both = edges if given.directed else np.concatenate([edges, edges[:, ::-1]])
    both = np.unique(both[both[:, 0] != both[:, 1]], axis=0)
    if not len(both):
        raise InputError(f"{place}: no edge joins two nodes, so there is nothing to attend to.")
    scaling = None
    if given.scaling == "rows":
        sums = np.abs(features).sum(axis=1, keepdims=True)
        features = np.divide(features, sums, out=np.zeros_like(features), where=sums > 0)
    elif given.scaling == "columns":
        mean, sd = features.mean(axis=0, dtype=np.float64), features.std(axis=0, dtype=np.float64)
        scaling = {"mean": mean.tolist(), "sd": np.where(sd > 0.0, sd, 1.0).tolist()}
        features = ((features - scaling["mean"]) / scaling["sd"]).astype(np.float32)
    return Graph(features, both.astype(np.int32), labels.astype(np.int32), classes, names, listed, scaling, columns)


def _drawn_splits(given, graph):
    """Return splits like those of Planetoid: so many training nodes of each class, and so many others."""
    if len(graph.classes) < 2:
        raise InputError(f"--train-per-class: the labels are of {len(graph.classes)} classes; 2 at least are needed.")
    generator = np.random.default_rng(given.split_seed)
    known = generator.permutation(np.flatnonzero(graph.labels >= 0))
    train = [known[graph.labels[known] == each][: given.train_per_class] for each in range(len(graph.classes))]
    train = np.concatenate(train)
    left = known[~np.isin(known, train)]
    if len(left) <= given.num_valid:
        raise InputError(
            f"--num-valid: {len(left)} nodes with a label are left beside {len(train)} of training; --num-valid "
            f"{max(1, len(left) // 3)} leaves the rest for the test. Received: {given.num_valid}"
        )
    test = left[given.num_valid : given.num_valid + given.num_test]
    parts = {"train": train, "valid": left[: given.num_valid], "test": test}
    return {name: np.sort(nodes) for name, nodes in parts.items()}


def _checked(place, graph, splits):
    """Return the splits, the nodes without a label left out; `InputError` for those that overlap or go too far."""
    seen = {}
    for name, nodes in splits.items():
        wrong = nodes[(nodes < 0) | (nodes >= len(graph.labels))]
        if wrong.size:
            raise InputError(f"{place}: the part {name} has the node {wrong[0]}; there are {len(graph.labels)}.")
        for node in nodes:
            if node in seen:
                twice = "twice" if seen[node] == name else f"and so has the part {seen[node]}"
                raise InputError(f"{place}: the part {name} has the node {graph.name(node)}, {twice}.")
            seen[node] = name
    parts = {name: nodes[graph.labels[nodes] >= 0] for name, nodes in splits.items()}
    for name in ("train", "valid"):
        if not len(parts[name]):
            raise InputError(f"{place}: the part {name} has no node with a label.")
    return {name: nodes for name, nodes in parts.items() if len(nodes)}


def read_npz(path):
    """Return features, labels, edges and splits, `None` where there are none, of a NumPy archive."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = dict(archive)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read as a NumPy archive of plain arrays: {error}") from error
    if "features" in found:
        features = found["features"]
    else:
        names = ("feat_data", "feat_indices", "feat_indptr", "feat_shape")
        _require(path, found, names)
        data, indices, indptr, shape = (found[name] for name in names)
        try:
            features = scipy.sparse.csr_matrix((data, indices, indptr), shape=tuple(shape))
            features.check_format()
        except ValueError as error:
            raise InputError(f"{path}: feat_data and what belongs to it are no matrix: {error}") from error
    _require(path, found, ("labels", "edges"))
    labels, edges = found["labels"], found["edges"]
    if features.ndim != 2 or not np.issubdtype(features.dtype, np.number):
        raise InputError(f"{path}: features: expected numbers (N, D). Received: {features.dtype}, {features.shape}")
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer) or labels.min(initial=0) < -1:
        raise InputError(f"{path}: labels: expected integers (N,) from -1 on. Received: {labels.dtype}, {labels.shape}")
    if edges.ndim != 2 or edges.shape[1] != 2 or not np.issubdtype(edges.dtype, np.integer):
        raise InputError(f"{path}: edges: expected integers (E, 2). Received: {edges.dtype}, {edges.shape}")
    keys = {"train": "train_idx", "valid": "val_idx", "test": "test_idx"}
    splits = {name: found[key] for name, key in keys.items() if key in found}
    for name, nodes in splits.items():
        if nodes.ndim != 1 or not np.issubdtype(nodes.dtype, np.integer):
            raise InputError(f"{path}: {keys[name]}: expected integers (M,). Received: {nodes.dtype}, {nodes.shape}")
    return features, labels.astype(np.int64), edges.astype(np.int64), _complete(path, splits)


def _require(path, found, names):
    for name in names:
        if name not in found:
            raise InputError(f"{path}: has no {name}. Received: {', '.join(sorted(found)) or 'nothing'}")


def _complete(place, splits):
    """Return splits, `None` for none at all."""
    if not splits:
        return None
    for name in ("train", "valid"):
        if name not in splits:
            raise InputError(f"{place}: has a part {' and '.join(splits)}, and none for {name}.")
    return splits


def read_nodes(path, labelled=True):
    """Return names, features and the names of these, labels, classes and splits, `None` where there are none, of a
    CSV, which has a column of labels if it is to be `labelled`."""
    rows = _rows(path)
    head = rows[0][1] if rows else []
    for name in ("node", "label") if labelled else ("node",):
        if name not in head:
            raise InputError(f"{path}:1: expected a header with node, label and the features. Received: {head}")
    twice = [name for index, name in enumerate(head) if name in head[:index]]
    if twice:
        raise InputError(f"{path}:1: two columns are named {twice[0]}.")
    columns = {name: head.index(name) for name in ("node", "label", "split") if name in head}
    numbers = [index for index in range(len(head)) if index not in columns.values()]
    names, features, labels, splits = {}, [], [], {}
    for line, row in rows[1:]:
        place = f"{path}:{line}"
        if len(row) != len(head):
            raise InputError(f"{place}: expected {len(head)} columns. Received: {len(row)}")
        node = row[columns["node"]].strip()
        if node in names:
            raise InputError(f"{place}: the node {node} stands in line {names[node]} already.")
        features.append([_number(f"{place}: {head[index]}", row[index]) for index in numbers])
        labels.append(row[columns["label"]].strip() if "label" in columns else "")
        split = row[columns["split"]].strip() if "split" in columns else ""
        if split:
            if split not in PARTS:
                raise InputError(f"{place}: split: expected {', '.join(PARTS)} or nothing. Received: {split}")
            splits.setdefault(split, []).append(len(names))
        names[node] = line
    if not numbers or not names:
        raise InputError(f"{path}: expected nodes with a feature at least.")
    classes = sorted(set(labels) - {""})
    numbered = np.array([classes.index(label) if label else -1 for label in labels])
    splits = {name: np.array(splits[name]) for name in PARTS if name in splits}
    named = [head[index] for index in numbers]
    return list(names), np.array(features, np.float32), named, numbered, classes, _complete(path, splits)


def _number(place, text):
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"{place}: expected a number. Received: {text[:40]!r}") from error


def read_edges(path, numbers):
    """Return the edges (E, 2) of a CSV of names; `numbers` is a dictionary from these."""
    found = []
    for line, row in _rows(path):
        ends = [name.strip() for name in row]
        if len(ends) != 2:
            raise InputError(f"{path}:{line}: expected a source and a target. Received: {len(ends)} columns")
        unknown = [name for name in ends if name not in numbers]
        if unknown:
            if not found and line == 1 and len(unknown) == 2:
                continue  # a header
            raise InputError(f"{path}:{line}: there is no node {unknown[0]}.")
        found.append([numbers[name] for name in ends])
    return np.array(found, np.int64).reshape(-1, 2)


def _rows(path):
    """Return the lines of a CSV that are not empty, each its number and its cells."""
    reader = csv.reader(io.StringIO("\n".join(read_lines(path))))
    try:
        return [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: cannot be read as a CSV: {error}") from error
