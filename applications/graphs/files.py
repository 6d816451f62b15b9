"""Read graphs from NumPy archives and from tables.

Shapes: N nodes, D features, E edges.
"""

import dataclasses
import functools
import zipfile
import zlib

import numpy as np
import scipy.sparse

from applications.common.errors import InputError
from applications.text.readers import table_rows

SPLITS = {"train": "train_idx", "valid": "val_idx", "test": "test_idx"}
_SPARSE = ("feat_data", "feat_indices", "feat_indptr", "feat_shape")
_ARRAYS = {"features": (2, np.number), "labels": (1, np.integer), "edges": (2, np.integer)}
_ARRAYS |= dict.fromkeys(SPLITS.values(), (1, np.integer))


@dataclasses.dataclass
class Graph:
    """A graph. The readers return the edges of a file; `data.read_graph` removes self-loops and repeated edges.

    Attributes:
        features: float32 (N, D).
        edges: int32 (E, 2), pairs of source and target.
        labels: int32 (N,), -1 for unknown labels.
        classes: Names of the classes, or `None` to use their numbers.
        names: Names of the nodes, or `None` to use their numbers.
        listed: Number of edges in the file.
        columns: Names of the features, or `None`.
    """

    features: np.ndarray
    edges: np.ndarray
    labels: np.ndarray
    classes: list | None = None
    names: list | None = None
    listed: int = 0
    columns: list | None = None

    @functools.cached_property
    def inputs(self):
        """Features and edges as tensors, the inputs of a model."""
        import tensorflow as tf

        return {"features": tf.constant(self.features), "edges": tf.constant(self.edges)}

    def name(self, node):
        return str(node) if self.names is None else self.names[node]


def read_npz(path):
    """Return the `Graph` in a NumPy archive, and a dictionary of its splits. If the archive contains no splits, the
    dictionary is `None`."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (EOFError, OSError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: expected a NumPy archive of plain arrays.") from error
    for name in (*(() if "features" in arrays else _SPARSE), "labels", "edges"):
        if name not in arrays:
            raise InputError(f"{path}: expected the array {name}. Received: {', '.join(sorted(arrays)) or 'nothing'}")
    if "features" not in arrays:
        *content, shape = (arrays[name] for name in _SPARSE)
        try:
            features = scipy.sparse.csr_matrix(tuple(content), shape=tuple(shape))
            features.check_format()
            arrays["features"] = features.toarray()
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}: expected feat_* arrays of a sparse matrix: {error}") from error
    for name, (ndim, kind) in _ARRAYS.items():
        array = arrays.get(name)
        if array is not None and (array.ndim != ndim or not np.issubdtype(array.dtype, kind)):
            expected = f"{'numbers' if kind is np.number else 'integers'} of {ndim} dimensions"
            raise InputError(f"{path}: {name}: expected {expected}. Received: {array.dtype}, {array.shape}")
    if arrays["edges"].shape[1] != 2 or arrays["labels"].min(initial=0) < -1:
        raise InputError(f"{path}: expected edges of shape (E, 2), and labels of 0 or more (-1 if unknown).")
    splits = {name: arrays[key] for name, key in SPLITS.items() if key in arrays}
    edges, labels = (arrays[name].astype(np.int64) for name in ("edges", "labels"))
    return Graph(arrays["features"].astype(np.float32), edges, labels), splits or None


def read_tables(path, edges_path, labelled=True):
    """Return the `Graph` in a CSV of nodes and a CSV of edges, and a dictionary of its splits. If the file of nodes has
    no splits, the dictionary is `None`. If `labelled`, this file needs a column `label`."""
    rows = _rows(path)
    header = rows[0][1] if rows else []
    if "node" not in header or (labelled and "label" not in header):
        raise InputError(f"{path}:1: expected a header with node, label and the features. Received: {header}")
    repeated = [name for index, name in enumerate(header) if name in header[:index]]
    if repeated:
        raise InputError(f"{path}:1: expected distinct column names. Received: two columns {repeated[0]}")
    columns = [name for name in header if name not in ("node", "label", "split")]
    lines, features, labels, splits = {}, [], [], {name: [] for name in SPLITS}
    for line, cells in rows[1:]:
        position = f"{path}:{line}"
        if len(cells) != len(header):
            raise InputError(f"{position}: expected {len(header)} columns. Received: {len(cells)}")
        row = dict(zip(header, cells))
        node, split = row["node"], row.get("split")
        if node in lines:
            raise InputError(f"{position}: expected each node once. Received: {node}, also in line {lines[node]}")
        try:
            features.append([float(row[name]) for name in columns])
        except ValueError as error:
            raise InputError(f"{position}: expected numbers as features: {error}") from error
        if split:
            if split not in splits:
                raise InputError(f"{position}: split: expected {', '.join(SPLITS)} or nothing. Received: {split}")
            splits[split].append(len(lines))
        labels.append(row.get("label", ""))
        lines[node] = line
    if not columns or not lines:
        raise InputError(f"{path}: expected nodes with at least one feature.")
    classes = sorted(set(labels) - {""})
    labels = np.array([classes.index(label) if label else -1 for label in labels])
    splits = {name: np.array(nodes) for name, nodes in splits.items() if nodes}
    edges = _read_edges(edges_path, {name: row for row, name in enumerate(lines)})
    graph = Graph(np.array(features, np.float32), edges, labels, classes, list(lines), columns=columns)
    return graph, splits or None


def _read_edges(path, numbers):
    edges = []
    for line, ends in _rows(path):
        if len(ends) != 2:
            raise InputError(f"{path}:{line}: expected a source and a target. Received: {len(ends)} columns")
        unknown = [name for name in ends if name not in numbers]
        if line == 1 and len(unknown) == 2:
            continue  # a header
        if unknown:
            raise InputError(f"{path}:{line}: expected a node name. Received: {unknown[0]}")
        edges.append([numbers[name] for name in ends])
    return np.array(edges, np.int64).reshape(-1, 2)


def _rows(path):
    return [(line, [cell.strip() for cell in row]) for line, row in table_rows(path, ".csv")]
