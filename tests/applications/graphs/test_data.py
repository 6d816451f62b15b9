"""Tests graphs from archives and tables, invalid files, splits and sampled neighbours."""

import numpy as np
import pytest
import scipy.sparse
from application_cases import changed, codec_of
from graphs_cases import APPLICATION, options_of
from program_case import written
from program_cases import GRAPHS_CASE

from applications.common.errors import InputError
from applications.common.option_values import check
from applications.graphs import data, sampling
from applications.graphs.options import EvaluateGraphs

FEATURES = np.arange(1.0, 29.0).reshape(7, 4)
LABELS = np.array([0, 1, 2, 0, 1, 2, 0])
EDGES = np.array([[0, 1], [1, 2], [2, 0], [3, 3], [4, 5], [5, 4], [0, 1]])
ARCHIVE = {"features": FEATURES, "labels": LABELS, "edges": EDGES}
SPLITS = {"train_idx": np.array([0, 1, 2]), "val_idx": np.array([3, 4]), "test_idx": np.array([5, 6])}


def options(**values):
    return changed(APPLICATION.program.default, **{"train_per_class": 1, "num_valid": 2, "num_test": 2, **values})


def archive(folder, **changes):
    path = str(folder / "graph.npz")
    np.savez(path, **{name: x for name, x in {**ARCHIVE, **SPLITS, **changes}.items() if x is not None})
    return path


def test_scaled_features(tmp_path):
    """Columns of a table are standardized. Another graph is scaled with the statistics of the training graph."""
    train_options = options_of(tmp_path)
    parts = data.read(train_options)
    codec = codec_of(APPLICATION, train_options, parts)
    graph = data.encode(train_options, codec, parts["train"]).graph
    np.testing.assert_allclose(graph.features.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(graph.features.std(axis=0), 1.0, rtol=1e-5)
    (tmp_path / "other").mkdir()
    other = EvaluateGraphs(run="out", **written(GRAPHS_CASE.evaluated, tmp_path / "other"))
    part = data.encode(train_options, codec, data.read_other(train_options, other))
    raw = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    expected = (raw - codec["scaling"]["mean"]) / codec["scaling"]["sd"]
    np.testing.assert_allclose(part.graph.features, expected, rtol=1e-4, atol=1e-6)


def test_an_archive(tmp_path):
    sparse = scipy.sparse.csr_matrix(FEATURES)
    changes = {
        "features": None,
        "feat_data": sparse.data,
        "feat_indices": sparse.indices,
        "feat_indptr": sparse.indptr,
        "feat_shape": np.array(sparse.shape),
    }
    dense = data.read(options(npz=archive(tmp_path)))
    compressed = data.read(options(npz=archive(tmp_path, **changes)))
    for name in ("train", "valid", "test"):
        np.testing.assert_array_equal(dense[name].nodes, SPLITS[{"valid": "val_idx"}.get(name, f"{name}_idx")])
        np.testing.assert_array_equal(dense[name].graph.features, compressed[name].graph.features)
    undirected = [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1], [4, 5], [5, 4]]
    assert dense["train"].graph.edges.tolist() == undirected
    directed = data.read(options(npz=archive(tmp_path), directed=True))["train"].graph.edges
    assert directed.tolist() == [[0, 1], [1, 2], [2, 0], [4, 5], [5, 4]]
    raw = data.read(options(npz=archive(tmp_path), scale_features="none"))["train"].graph.features
    np.testing.assert_array_equal(raw, FEATURES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": None}, "expected the array feat_data"),
        ({"edges": np.array([[0, 7]])}, "edge 0, 0 to 7: expected nodes from 0 to 6"),
        ({"edges": EDGES.T}, r"expected edges of shape \(E, 2\)"),
        ({"edges": EDGES * 1.0}, "edges: expected integers"),
        ({"features": np.where(FEATURES == 10.0, np.nan, FEATURES)}, "node 2: expected feature 2 to be a finite"),
        ({"labels": LABELS - 2}, "expected .* labels of 0 or more"),
        ({"labels": LABELS[:5]}, "expected a label for each of 7 nodes. Received: 5"),
        ({"train_idx": np.array([0, 7])}, "expected node numbers below 7 in splits. Received: 7"),
        ({"val_idx": np.array([3, 2])}, "expected no node in two splits. Received: 2"),
        ({"val_idx": None}, "expected a valid split. Received: train, test"),
        (
            {"labels": np.where(LABELS == 1, LABELS, -1), "val_idx": np.array([3])},
            "expected labelled nodes in the valid split",
        ),
        ({"labels": LABELS + 1}, "expected nodes of every class. Received: none of class 0"),
        ({"labels": LABELS + 100}, "expected labels below 7, .* Received: 10[0-9]"),
        ({"features": np.array([object()])}, "expected a NumPy archive of plain arrays"),
    ],
)
def test_invalid_archives(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        data.read(options(npz=archive(tmp_path, **changes)))


def test_tables(tmp_path):
    parts = data.read(options_of(tmp_path))
    graph = parts["train"].graph
    assert [len(parts[name].nodes) for name in ("train", "valid", "test")] == [12, 6, 6]
    assert graph.classes == ["a", "b", "c"] and graph.name(3) == "n3"
    assert graph.labels.tolist() == [number % 3 for number in range(24)]
    assert len(graph.edges) == 2 * 48


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("nodes", "node,class,f\na,x,1\n", r"nodes.txt:1: expected a header with node, label"),
        ("nodes", "node,label,f\na,x,1\na,y,2\n", "nodes.txt:3: expected each node once. Received: a, also in line 2"),
        ("nodes", "node,label,f\na,x,much\n", "nodes.txt:2: expected numbers as features: .*'much'"),
        ("nodes", "node,label,f,f\na,x,1,2\n", "nodes.txt:1: expected distinct column names. Received: two columns f"),
        ("edges", "source,target\n", "nodes.txt: expected at least one edge"),
        ("nodes", "node,label,f\na,x\n", "nodes.txt:2: expected 3 columns. Received: 2"),
        ("nodes", "node,label,split,f\na,x,dev,1\n", "nodes.txt:2: split: expected train, valid, test or nothing"),
        ("nodes", "node,label\na,x\n", "expected nodes with at least one feature"),
        ("nodes", "node,label,f\na,x,1\nb,x,2\n", "edges.txt:2: expected a node name. Received: n0"),
        ("edges", "n0,n1,n2\n", "edges.txt:1: expected a source and a target. Received: 3 columns"),
        ("edges", "n0,n1\nn1,nobody\n", "edges.txt:2: expected a node name. Received: nobody"),
    ],
)
def test_invalid_tables(tmp_path, name, text, message):
    options = options_of(tmp_path)
    (tmp_path / f"{name}.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        data.read(options)


def test_columns_in_another_order(tmp_path):
    train_options = options_of(tmp_path, scale_features="columns")
    parts = data.read(train_options)
    codec = codec_of(APPLICATION, train_options, parts)
    expected = data.encode(train_options, codec, parts["train"]).graph
    lines = [line.split(",") for line in (tmp_path / "nodes.txt").read_text().splitlines()]
    order = [5, 0, 4, 1, 2, 3]

    def write(head):
        table = [head, *([line[place] for place in order] for line in lines[1:])]
        (tmp_path / "nodes.txt").write_text("".join(",".join(line) + "\n" for line in table))

    write([lines[0][place] for place in order])
    part = data.read(train_options)["train"]
    assert part.graph.columns == ["third", "second", "first"]
    encoded = data.encode(train_options, codec, part).graph
    np.testing.assert_array_equal(encoded.features, expected.features)
    write(["dritte", "node", "second", "label", "split", "first"])
    with pytest.raises(InputError, match="the graph has no feature third; the model expects first, second, third"):
        data.encode(train_options, codec, data.read(train_options)["train"])


def test_drawn_splits(tmp_path):
    path = archive(tmp_path, **dict.fromkeys(SPLITS), labels=np.where(np.arange(7) == 6, -1, LABELS))
    parts = data.read(options(npz=path, num_valid=1, num_test=5))
    assert {LABELS[node] for node in parts["train"].nodes} == {0, 1, 2} and len(parts["train"].nodes) == 3
    assert len(parts["valid"].nodes) == 1 and len(parts["test"].nodes) == 2
    every = np.concatenate([part.nodes for part in parts.values()])
    assert sorted(every) == [0, 1, 2, 3, 4, 5]
    again = data.read(options(npz=path, num_valid=1, num_test=5, seed=3))
    assert all(np.array_equal(parts[name].nodes, again[name].nodes) for name in parts)
    with pytest.raises(
        InputError,
        match=r"--num-valid: expected fewer than the 3 labelled nodes .*, such as 1. Received: 3",
    ):
        data.read(options(npz=path, num_valid=3))


def test_published_values_need_a_graph():
    """`--published cora` requires the Cora graph: no values were published for the built-in graph."""
    with pytest.raises(InputError, match="--published: cora requires a graph file"):
        check(options(published="cora"))


def test_drawn_neighbours():
    """Nodes get a uniform sample of their neighbours without repetition. Then the sampled nodes get a sample, too."""
    edges = np.array([[source, target] for target in range(6) for source in range(6) if source != target])
    sampler, counts = sampling.NeighborSampler(edges, 6), np.zeros(6)
    generator = np.random.default_rng(0)
    for _ in range(400):
        drawn = sampler.draw(np.array([0]), (2, 1), generator)
        first = drawn[drawn[:, 1] == 0]
        assert len(first) == 2 and len(np.unique(first[:, 0])) == 2
        second = drawn[drawn[:, 1] != 0]
        assert sorted(second[:, 1]) == sorted(first[:, 0])
        counts[first[:, 0]] += 1
    expected = 400 * 2 / 5
    assert np.abs(counts[1:] - expected).max() < 4 * np.sqrt(400 * 0.4 * 0.6)
    everything = sampler.draw(np.array([0, 3]), (10,), generator)
    assert sorted(map(tuple, everything)) == sorted((s, t) for s, t in map(tuple, edges) if t in (0, 3))
    assert len(sampling.NeighborSampler(np.zeros((0, 2), int), 3).draw(np.array([1]), (2, 2), generator)) == 0
