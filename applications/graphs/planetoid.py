"""The files of Planetoid (Yang et al. 2016): pickles of arrays, which are read without running what they may hold."""

import gzip
import io
import pickle
import re

import numpy as np
import scipy.sparse

from applications.common.errors import InputError


class _Dtype:
    """What NumPy pickles of a type, of numbers alone: of objects the bytes would be taken for addresses."""

    def __init__(self, name, *_):
        if not re.fullmatch("[biuf][1248]", name):
            raise ValueError(f"an array of {name}, and not of numbers")
        self.name, self.order = name, "|"

    def __setstate__(self, state):
        self.order = {"<": "<", ">": ">"}.get(state[1], "|")

    def numpy(self):
        return np.dtype(self.order + self.name)


class _Array:
    """What NumPy pickles of an array; nothing of NumPy is called before all of it is looked at."""

    def __setstate__(self, state):
        _, self.shape, self.dtype, self.by_columns, self.content = state

    def value(self):
        content = self.content.encode("latin1") if isinstance(self.content, str) else self.content
        found = np.frombuffer(content, self.dtype.numpy())
        if not all(isinstance(size, int) and size >= 0 for size in self.shape):
            raise ValueError(f"an array of shape {self.shape}")
        return found.reshape(self.shape, order="F" if self.by_columns else "C").astype(found.dtype.newbyteorder("="))


class _Csr:
    """The same of scipy's matrix, of whichever version."""

    def __setstate__(self, state):
        self.state = state

    def value(self):
        data, indices, indptr = (self.state[name].value() for name in ("data", "indices", "indptr"))
        matrix = scipy.sparse.csr_matrix((data, indices, indptr), shape=self.state["_shape"])
        # Without it scipy's compiled code would follow them out of the arrays.
        matrix.check_format(full_check=True)
        return matrix


# A name that a pickle has, and nothing that it could call.
_NDARRAY = object()


def _reconstruct(kind, *_):
    if kind is not _NDARRAY:
        raise ValueError(f"an array that is a {kind}")
    return _Array()


def _lists(factory=list):
    """A plain dictionary in place of the one with a factory, which would be called for what is missing."""
    return {}


def _encode(text, encoding):
    return text.encode(encoding if encoding == "latin1" else "ascii")


_ALLOWED = {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,
    ("scipy.sparse._csr", "csr_matrix"): _Csr,
    ("collections", "defaultdict"): _lists,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, place):
        super().__init__(file, encoding="latin1")
        self.place = place

    def find_class(self, module, name):
        if (module, name) not in _ALLOWED:
            raise InputError(f"{self.place}: holds a {module}.{name}, and only arrays and lists are read.")
        return _ALLOWED[module, name]


def read_pickle(path):
    """Return the array, sparse matrix or dictionary in a file, plain or compressed.

    Raises:
        InputError: If it holds anything else, which is named, or is no pickle.
    """
    with open(path, "rb") as file:
        content = file.read()
    try:
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        found = _Unpickler(io.BytesIO(content), path).load()
        return found.value() if isinstance(found, (_Array, _Csr)) else found
    except InputError:
        raise
    except Exception as error:  # a damaged pickle raises anything
        raise InputError(f"{path} cannot be read as a pickle: {error}") from error


def read_planetoid(prefix):
    """Return what the files with a prefix hold.

    The test nodes of ALLX's successors stand in tx in the order of test.index. Where test.index leaves out numbers, as
    for Citeseer, there are nodes without features and without a label.

    Returns:
        Features, a CSR matrix (N, D); labels (N,), -1 for unknown; edges (E, 2) as they are listed; and the numbers of
        the training, validation and test nodes: the first ones of y, the 500 after them, those of test.index.
    """
    parts = {}
    for name in ("x", "tx", "allx", "y", "ty", "ally", "graph"):
        parts[name] = read_pickle(f"{prefix}.{name}")
    try:
        order = np.loadtxt(f"{prefix}.test.index", dtype=np.int64, ndmin=1)
    except ValueError as error:
        raise InputError(f"{prefix}.test.index: expected a number a line: {error}") from error
    _check(prefix, parts, order)
    known, num_classes = parts["allx"].shape[0], parts["ally"].shape[1]
    count = max(known, int(order.max()) + 1)
    features = scipy.sparse.lil_matrix((count, parts["allx"].shape[1]), dtype=np.float32)
    features[:known] = parts["allx"]
    features[order] = parts["tx"]
    one_hot = np.zeros((count, num_classes))
    one_hot[:known], one_hot[order] = parts["ally"], parts["ty"]
    labels = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
    edges = [(source, target) for target, sources in parts["graph"].items() for source in sources]
    num_train = parts["y"].shape[0]
    splits = {
        "train": np.arange(num_train),
        "valid": np.arange(num_train, min(num_train + 500, known)),
        "test": np.sort(order),
    }
    return features.tocsr(), labels, np.array(edges, np.int64).reshape(-1, 2), splits


def _check(prefix, parts, order):
    """Raise `InputError` unless the parts fit together."""
    for name in ("x", "tx", "allx"):
        if not scipy.sparse.issparse(parts[name]):
            raise InputError(f"{prefix}.{name}: expected a sparse matrix. Received: {type(parts[name]).__name__}")
    for name in ("y", "ty", "ally"):
        if not isinstance(parts[name], np.ndarray) or parts[name].ndim != 2:
            raise InputError(f"{prefix}.{name}: expected an array of one-hot rows.")
        if not np.isin(parts[name], (0, 1)).all():
            raise InputError(f"{prefix}.{name}: expected rows of zeros and ones.")
    graph = parts["graph"]
    if not isinstance(graph, dict):
        raise InputError(f"{prefix}.graph: expected a dictionary of lists. Received: {type(graph).__name__}")
    for node, of in graph.items():
        if not isinstance(of, list) or not all(type(x) is int and x >= 0 for x in (node, *of)):
            raise InputError(f"{prefix}.graph: expected a list of numbers of nodes. Received: {node!r}: {of!r}"[:300])
    for first, second in (("x", "y"), ("tx", "ty"), ("allx", "ally")):
        if parts[first].shape[0] != parts[second].shape[0]:
            raise InputError(
                f"{prefix}.{second}: expected as many rows as {prefix}.{first} has, {parts[first].shape[0]}. "
                f"Received: {parts[second].shape[0]}"
            )
    for what, names in (("features", ("x", "tx", "allx")), ("classes", ("y", "ty", "ally"))):
        for name in names[:2]:
            if parts[name].shape[1] != parts[names[2]].shape[1]:
                raise InputError(f"{prefix}.{name}: expected as many {what} as {prefix}.{names[2]} has.")
    for name, whole in (("x", "allx"), ("y", "ally")):
        first = parts[whole][: parts[name].shape[0]]
        if first.shape != parts[name].shape or abs(first - parts[name]).max() > 0:
            raise InputError(f"{prefix}.{name}: expected the first rows of {prefix}.{whole}.")
    known = parts["allx"].shape[0]
    if len(order) != parts["tx"].shape[0] or order.min() < known or len(set(order)) < len(order):
        raise InputError(f"{prefix}.test.index: expected {parts['tx'].shape[0]} different numbers, none below {known}.")
    if order.max() >= known + 2 * len(order):
        raise InputError(
            f"{prefix}.test.index: leaves out more numbers than it has: {order.max()} is far from {known}, where the "
            "test nodes begin."
        )
