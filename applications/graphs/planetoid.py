"""The files of Planetoid (Yang et al. 2016): pickles of arrays, which are read without running what they may hold."""

import gzip
import io
import pickle

import numpy as np
import scipy.sparse

from applications.common.errors import InputError


class _Csr:
    """Takes the place of scipy's matrix, of whichever version: it only holds what was pickled."""

    def matrix(self):
        values = vars(self)
        return scipy.sparse.csr_matrix((values["data"], values["indices"], values["indptr"]), shape=values["_shape"])


# NumPy moved it, and warns of the old place.
_RECONSTRUCT = np.zeros(0).__reduce__()[0]
_ALLOWED = {
    ("numpy", "dtype"): lambda: np.dtype,
    ("numpy", "ndarray"): lambda: np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): lambda: _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): lambda: _RECONSTRUCT,
    ("scipy.sparse.csr", "csr_matrix"): lambda: _Csr,
    ("scipy.sparse._csr", "csr_matrix"): lambda: _Csr,
    ("collections", "defaultdict"): lambda: _lists,
    ("__builtin__", "list"): lambda: list,
    ("builtins", "list"): lambda: list,
    ("_codecs", "encode"): lambda: _encode,
}


def _lists(factory=list):
    """A plain dictionary in place of the one with a factory, which would be called for what is missing."""
    return {}


def _encode(text, encoding):
    return text.encode(encoding if encoding == "latin1" else "ascii")


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, place):
        super().__init__(file, encoding="latin1")
        self.place = place

    def find_class(self, module, name):
        if (module, name) not in _ALLOWED:
            raise InputError(f"{self.place}: holds a {module}.{name}, and only arrays and lists are read.")
        return _ALLOWED[module, name]()


def read_pickle(path):
    """Return the array, sparse matrix or dictionary in a file, plain or compressed.

    Raises:
        InputError: If it holds anything else, which is named, or is no pickle.
    """
    with open(path, "rb") as file:
        content = file.read()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    try:
        found = _Unpickler(io.BytesIO(content), path).load()
    except InputError:
        raise
    except Exception as error:  # a damaged pickle raises anything
        raise InputError(f"{path} cannot be read as a pickle: {error}") from error
    return found.matrix() if isinstance(found, _Csr) else found


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
    count = max(known, int(order.max()) + 1, *(1 + max(row, *of) for row, of in parts["graph"].items() if of))
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
    if not isinstance(parts["graph"], dict):
        raise InputError(f"{prefix}.graph: expected a dictionary of lists. Received: {type(parts['graph']).__name__}")
    for first, second in (("x", "y"), ("tx", "ty"), ("allx", "ally")):
        if parts[first].shape[0] != parts[second].shape[0]:
            raise InputError(
                f"{prefix}.{second}: expected as many rows as {prefix}.{first} has, {parts[first].shape[0]}. "
                f"Received: {parts[second].shape[0]}"
            )
    if len({parts[name].shape[1] for name in ("x", "tx", "allx")}) > 1:
        raise InputError(f"{prefix}.tx: expected as many features as {prefix}.allx has.")
    if len(order) != parts["tx"].shape[0] or order.min() < parts["allx"].shape[0] or len(set(order)) < len(order):
        raise InputError(
            f"{prefix}.test.index: expected {parts['tx'].shape[0]} different numbers, none below "
            f"{parts['allx'].shape[0]}."
        )
