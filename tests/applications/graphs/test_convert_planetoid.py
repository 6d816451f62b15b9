"""Tests the conversion of Planetoid's pickles, and invalid pickles."""

import collections
import pickle

import numpy as np
import pytest
import scipy.sparse
from application_cases import changed

from applications.common.errors import InputError
from applications.graphs import data
from applications.graphs.options import Options
from tools.convert_planetoid import convert, read_planetoid

FEATURES = np.arange(1.0, 29.0).reshape(7, 4)


def write_planetoid(folder, missing=True, **changes):
    """Write five nodes and the test nodes 5, 6 and 8; node 7 is missing, as in Citeseer. Return the path prefix."""
    one_hot = np.eye(3)
    test = np.array([[8], [5], [6]]) if missing else np.array([[7], [5], [6]])
    graph = collections.defaultdict(list, {0: [1, 1, 2], 1: [0, 0], 2: [0], 5: [5], 6: [int(test[0, 0])]})
    parts = {
        "x": scipy.sparse.csr_matrix(FEATURES[:2]),
        "y": one_hot[[0, 1]],
        "tx": scipy.sparse.csr_matrix(FEATURES[4:]),
        "ty": one_hot[[2, 0, 1]],
        "allx": scipy.sparse.csr_matrix(np.concatenate([FEATURES[:4], FEATURES[:1]])),
        "ally": one_hot[[0, 1, 2, 0, 1]],
        "graph": graph,
        **changes,
    }
    for name, part in parts.items():
        # The original files use protocol 2.
        (folder / f"ind.tiny.{name}").write_bytes(pickle.dumps(part, protocol=2))
    (folder / "ind.tiny.test.index").write_text("".join(f"{row}\n" for row in test[:, 0]))
    return str(folder / "ind.tiny")


def test_planetoid(tmp_path):
    features, labels, edges, splits = read_planetoid(write_planetoid(tmp_path))
    assert features.shape == (9, 4)
    np.testing.assert_array_equal(features[[8, 5, 6]], FEATURES[4:])
    np.testing.assert_array_equal(features[:5], FEATURES[[0, 1, 2, 3, 0]])
    assert (features[7] == 0).all()
    assert labels.tolist() == [0, 1, 2, 0, 1, 0, 1, -1, 2]
    assert edges.tolist() == [[1, 0], [1, 0], [2, 0], [0, 1], [0, 1], [0, 2], [5, 5], [8, 6]]
    assert {name: nodes.tolist() for name, nodes in splits.items()} == {
        "train": [0, 1],
        "valid": [2, 3, 4],
        "test": [5, 6, 8],
    }


def test_statistics_of_planetoid(tmp_path):
    path = str(tmp_path / "tiny.npz")
    assert convert(write_planetoid(tmp_path), path) == 9
    parts = data.read(changed(Options(), npz=path))
    report = parts["test"].report
    # The file lists five edges: three count in both directions; a self-loop and a duplicate are dropped.
    assert (report["nodes"], report["of the graph"], report["edges listed"], report["edges"]) == (3, 9, 5, 6)
    assert (report["features"], report["classes"], report["isolated nodes"]) == (4, 3, 4)
    np.testing.assert_allclose(parts["test"].graph.features.sum(axis=1)[[0, 7, 8]], [1.0, 0.0, 1.0], rtol=1e-6)


class Foreign:
    """Pickles as a function call with a state, not as an array."""

    def __init__(self, function=print, arguments=("never",), state=None):
        self.parts = (function, arguments, state)

    def __reduce__(self):
        return self.parts


RECONSTRUCT = np.zeros(0).__reduce__()[0]
# Dtypes of Python objects: NumPy would interpret eight bytes of the file as an address.
OBJECT = Foreign(np.dtype, ("O", False, True), (3, "|", None, None, None, -1, -1, 0))
HOLDER = Foreign(np.dtype, ("V8", False, True), (4, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 0))
FORGED = [
    Foreign(np.ndarray, ((1,), "O", b"A" * 8)),
    *(Foreign(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (1,), kind, False, b"A" * 8)) for kind in (OBJECT, HOLDER)),
    Foreign(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (3, 5), np.dtype("f8"), False, b"A" * 8)),
]


@pytest.mark.parametrize("forged", FORGED)
def test_forged_arrays(tmp_path, forged):
    prefix = write_planetoid(tmp_path, ally=forged)
    with pytest.raises(InputError, match=r"ind\.tiny\.ally cannot be read as a pickle"):
        read_planetoid(prefix)


@pytest.mark.parametrize(
    ("name", "values"), [("indptr", [0, 10**9, 8]), ("indptr", [0, -5, 8]), ("indices", [0, 1, 2, 10**9, 0, 1, 2, 3])]
)
def test_sparse_indices_out_of_range(tmp_path, name, values):
    """Out-of-range indices raise an error, because compiled code would crash on them."""
    features = scipy.sparse.csr_matrix(FEATURES[:2])
    setattr(features, name, np.array(values, np.int32))
    with pytest.raises(InputError, match=r"ind\.tiny\.x cannot be read as a pickle"):
        read_planetoid(write_planetoid(tmp_path, x=features))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": Foreign()}, r"ind\.tiny\.y: expected only arrays and lists. Received: (builtins|__builtin__)\.print"),
        ({"graph": {0: [collections.OrderedDict()]}}, "collections.OrderedDict"),
        ({"ty": np.ones(3)}, r"ind\.tiny\.ty: expected a matrix. Received: ndarray"),
        ({"graph": [[1]]}, r"ind\.tiny\.graph: expected a dictionary of lists. Received: list"),
        ({"ally": np.eye(3)}, r"ally: expected \(5, 3\), the rows of allx and .* Received: \(3, 3\)"),
        ({"ty": np.full((3, 3), np.nan)}, r"ind\.tiny\.ty: expected rows of zeros and ones"),
        ({"y": np.eye(3)[[1, 1]]}, r"ind\.tiny\.y: expected the first rows of .*ally"),
        ({"graph": {0: ["a"]}}, r"graph: expected a list of node numbers. Received: 0: \['a'\]"),
    ],
)
def test_invalid_pickles(tmp_path, capsys, changes, message):
    prefix = write_planetoid(tmp_path, **changes)
    with pytest.raises(InputError, match=message):
        read_planetoid(prefix)
    assert "never" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("5\n6\n4\n", "expected 3 different numbers, all at least 5"),
        ("five\n", "expected one number per line"),
        ("5\n6\n99999\n", "expected numbers below 11. Received: 99999"),
    ],
)
def test_a_wrong_index(tmp_path, index, message):
    prefix = write_planetoid(tmp_path)
    (tmp_path / "ind.tiny.test.index").write_text(index)
    with pytest.raises(InputError, match=rf"test\.index: {message}"):
        read_planetoid(prefix)


def test_a_damaged_pickle(tmp_path):
    prefix = write_planetoid(tmp_path)
    for content in (b"\x80\x02]", pickle.dumps({})[:-1], b"never"):
        (tmp_path / "ind.tiny.graph").write_bytes(content)
        with pytest.raises(InputError, match=r"ind\.tiny\.graph cannot be read as a pickle"):
            read_planetoid(prefix)
