"""Converts the files of Planetoid (Yang et al. 2016) to the .npz that applications.graphs reads.

    python -m tools.convert_planetoid planetoid/ind.cora cora.npz

The first argument is the common prefix of eight files, such as planetoid/ind.cora.x. The test index is a text file; the
other seven files are pickles. A pickle may contain code, so the tool reads only arrays, sparse matrices and lists of
numbers, and rejects any other object. The .npz contains each edge once, in one direction. In Citeseer, some nodes are
missing from the test index; their features are 0 and their label is -1.
"""

import argparse
import pickle
import re

import numpy as np
import scipy.sparse

from applications.common.errors import InputError
from applications.graphs.files import SPLITS

_ARRAYS = ("x", "tx", "allx", "y", "ty", "ally")


class _Dtype:
    """Replaces `numpy.dtype` in a pickle, and accepts only numeric types. With a forged object type, NumPy would use
    the bytes of an array as addresses."""

    def __init__(self, name, *_):
        if not re.fullmatch("[biuf][1248]", name):
            raise ValueError(f"expected an array of numbers. Received: {name}")
        self.value = np.dtype(name)

    def __setstate__(self, state):
        self.value = self.value.newbyteorder(state[1])


class _Array(np.ndarray):
    def __setstate__(self, state):
        version, shape, dtype, *content = state
        if min(shape, default=0) < 0:
            raise ValueError(f"expected a shape without negative sizes. Received: {shape}")
        super().__setstate__((version, shape, dtype.value, *content))


class _Csr:
    """Replaces `csr_matrix` in a pickle, so that any version of SciPy can read it."""

    def toarray(self):
        matrix = scipy.sparse.csr_matrix((self.data, self.indices, self.indptr), shape=self._shape)
        # SciPy's compiled code reads out of bounds if an index is wrong.
        matrix.check_format(full_check=True)
        return matrix.toarray()


# Names that a pickle may contain, with replacements. A `defaultdict` would hide missing keys.
_ALLOWED = {
    "numpy.dtype": _Dtype,
    "numpy.ndarray": None,
    "numpy.core.multiarray._reconstruct": lambda *_: _Array(0),
    "numpy._core.multiarray._reconstruct": lambda *_: _Array(0),
    "scipy.sparse.csr.csr_matrix": _Csr,
    "scipy.sparse._csr.csr_matrix": _Csr,
    "collections.defaultdict": lambda *_: {},
    "__builtin__.list": list,
    "builtins.list": list,
    "_codecs.encode": lambda text, _: text.encode("latin1"),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if f"{module}.{name}" not in _ALLOWED:
            raise InputError(f"expected only arrays and lists. Received: {module}.{name}")
        return _ALLOWED[f"{module}.{name}"]


def read_pickle(path):
    """Return the array or the dictionary in a pickle file. A sparse matrix is converted to a dense array.

    Raises:
        InputError: If the file is not a pickle, or contains an object of another type.
    """
    try:
        with open(path, "rb") as file:
            content = _Unpickler(file, encoding="latin1").load()
        if isinstance(content, (_Array, _Csr)):
            return np.asarray(content) if isinstance(content, _Array) else content.toarray()
        return content
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except Exception as error:  # a damaged pickle may raise any exception
        raise InputError(f"{path} cannot be read as a pickle: {error}") from error


def read_planetoid(prefix):
    """Return the graph that is stored in the files `PREFIX.*`.

    Row i of the arrays `PREFIX.tx` and `PREFIX.ty` belongs to the node whose number is line i of `PREFIX.test.index`.
    In Citeseer, some nodes are missing from test.index; their features are 0, and they have no label.

    Returns:
        Features (N, D); labels (N,), -1 for unknown; edges (E, 2) in the order of the file; and a dictionary of node
        numbers. "train" has the nodes of `PREFIX.x`, "valid" the next 500, and "test" the nodes in test.index.
    """
    parts = {name: read_pickle(f"{prefix}.{name}") for name in (*_ARRAYS, "graph")}
    try:
        order = np.loadtxt(f"{prefix}.test.index", dtype=np.int64, ndmin=1)
    except ValueError as error:
        raise InputError(f"{prefix}.test.index: expected one number per line: {error}") from error
    _check(prefix, parts, order)
    num_known, num_train = len(parts["allx"]), len(parts["x"])
    count = max(num_known, int(order.max(initial=0)) + 1)
    features = np.zeros((count, parts["allx"].shape[1]), np.float32)
    features[:num_known] = parts["allx"]
    features[order] = parts["tx"]
    one_hot = np.zeros((count, parts["ally"].shape[1]))
    one_hot[:num_known], one_hot[order] = parts["ally"], parts["ty"]
    labels = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
    edges = [(source, target) for target, sources in parts["graph"].items() for source in sources]
    splits = {
        "train": np.arange(num_train),
        "valid": np.arange(num_train, min(num_train + 500, num_known)),
        "test": np.sort(order),
    }
    return features, labels, np.array(edges, np.int64).reshape(-1, 2), splits


def _check(prefix, parts, order):
    """Raise `InputError` if a file is invalid or contradicts another file."""
    for name in _ARRAYS:
        if not isinstance(parts[name], np.ndarray) or parts[name].ndim != 2:
            raise InputError(f"{prefix}.{name}: expected a matrix. Received: {type(parts[name]).__name__}")
    for features, labels in (("x", "y"), ("tx", "ty"), ("allx", "ally")):
        for name, reference in ((features, "allx"), (labels, "ally")):
            shape = len(parts[features]), parts[reference].shape[1]
            if parts[name].shape != shape:
                fitting = f"the rows of {features} and the columns of {reference}"
                raise InputError(f"{prefix}.{name}: expected {shape}, {fitting}. Received: {parts[name].shape}")
        if not np.isin(parts[labels], (0, 1)).all():
            raise InputError(f"{prefix}.{labels}: expected rows of zeros and ones.")
    for name, reference in (("x", "allx"), ("y", "ally")):
        if not np.array_equal(parts[name], parts[reference][: len(parts[name])]):
            raise InputError(f"{prefix}.{name}: expected the first rows of {prefix}.{reference}.")
    if not isinstance(parts["graph"], dict):
        raise InputError(f"{prefix}.graph: expected a dictionary of lists. Received: {type(parts['graph']).__name__}")
    for node, sources in parts["graph"].items():
        if not isinstance(sources, list) or not all(type(x) is int and x >= 0 for x in (node, *sources)):
            expected = "expected a list of node numbers"
            raise InputError(f"{prefix}.graph: {expected}. Received: {node!r}: {sources!r}"[:300])
    num_known, count = len(parts["allx"]), len(parts["tx"])
    if len(order) != count or order.min(initial=num_known) < num_known or len(set(order)) < count:
        raise InputError(f"{prefix}.test.index: expected {count} different numbers, all at least {num_known}.")
    # The largest node number is the size of the graph, so a corrupt number could exhaust the memory.
    if order.max(initial=0) >= num_known + 2 * count:
        expected = f"expected numbers below {num_known + 2 * count}"
        raise InputError(f"{prefix}.test.index: {expected}. Received: {order.max()}")


def convert(prefix, out):
    """Write the graph in the files `PREFIX.*` to the .npz `out`. Return the number of nodes."""
    features, labels, edges, splits = read_planetoid(prefix)
    # The files list each edge twice, once for each of its nodes.
    edges, counts = np.unique(np.sort(edges, axis=1), axis=0, return_counts=True)
    edges = np.repeat(edges, (counts + 1) // 2, axis=0)
    sparse = scipy.sparse.csr_matrix(features)
    arrays = {"feat_data": sparse.data, "feat_indices": sparse.indices, "feat_indptr": sparse.indptr}
    arrays |= {"feat_shape": np.array(sparse.shape), "labels": labels, "edges": edges}
    arrays |= {SPLITS[name]: nodes for name, nodes in splits.items()}
    np.savez_compressed(out, **arrays)
    return len(labels)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix")
    parser.add_argument("out")
    arguments = parser.parse_args()
    out = arguments.out.removesuffix(".npz") + ".npz"
    try:
        print(f"written: {out}, {convert(arguments.prefix, out)} nodes")
    except (InputError, OSError) as error:
        raise SystemExit(f"error: {error}") from error
