"""Build mini-batches of nodes with sampled neighbours (Hamilton et al. 2017). A step does not need the full graph."""

import itertools

import numpy as np
import tensorflow as tf

from applications.common.batches import prefetched


class NeighborSampler:
    """Samples neighbours in a graph with `num_nodes` nodes. Each row of `edges` (E, 2) is a pair (source, target)."""

    def __init__(self, edges, num_nodes):
        order = np.argsort(edges[:, 1], kind="stable")
        self.sources = edges[order, 0]
        self.starts = np.searchsorted(edges[order, 1], np.arange(num_nodes + 1))

    def draw(self, nodes, counts, generator):
        """Return sampled edges (E, 2) around the distinct `nodes` (M,). Step 0 samples up to `counts[0]` edges into
        each of the `nodes`. Step i samples up to `counts[i]` edges into each node that step i - 1 reached for the first
        time."""
        edges, visited = [], np.asarray(nodes)
        for count in counts:
            degrees = self.starts[nodes + 1] - self.starts[nodes]
            targets = np.repeat(nodes, degrees)
            first = np.repeat(np.cumsum(degrees) - degrees, degrees)
            sources = self.sources[np.repeat(self.starts[nodes], degrees) + np.arange(len(targets)) - first]
            order = np.lexsort((generator.random(len(targets)), np.repeat(np.arange(len(nodes)), degrees)))
            chosen = order[np.arange(len(targets)) - first < count]
            edges.append(np.stack([sources[chosen], targets[chosen]], axis=1))
            nodes = np.setdiff1d(sources[chosen], visited)
            visited = np.concatenate([visited, nodes])
        return np.concatenate(edges)


def sampled_batches(part, options, first_epoch):
    """Return an endless dataset of training batches. Order and neighbours depend only on the seed and the epoch. Each
    batch numbers its nodes from 0. Nodes and edges are padded to powers of two: XLA then compiles only a few shapes.
    "nodes_mask" and "edges_mask" are false for padding."""
    graph, batch_size = part.graph, options.fit.batch_size
    sampler = NeighborSampler(graph.edges, len(graph.labels))

    def batches():
        for epoch in itertools.count(first_epoch):
            generator = np.random.default_rng([options.run.seed, epoch])
            order = generator.permutation(part.nodes)
            for start in range(0, len(order), batch_size):
                yield batch_of(graph, sampler, order[start : start + batch_size], options.sampling.neighbors, generator)

    features, edges = tf.TensorSpec((None, graph.features.shape[1])), tf.TensorSpec((None, 2), tf.int32)
    integers, booleans = tf.TensorSpec((None,), tf.int32), tf.TensorSpec((None,), tf.bool)
    inputs = {"features": features, "edges": edges, "targets": integers, "nodes_mask": booleans, "edges_mask": booleans}
    return prefetched(tf.data.Dataset.from_generator(batches, output_signature=(inputs, integers)))


def batch_of(graph, sampler, nodes, counts, generator):
    """Return the inputs and labels of a batch of training `nodes` (M,). `sampler.draw` explains `counts`."""
    edges = sampler.draw(nodes, counts, generator)
    node_ids, new_ids = np.unique(np.concatenate([nodes, edges.reshape(-1)]), return_inverse=True)
    size, num_edges = (1 << max(count - 1, 0).bit_length() for count in (len(node_ids), len(edges)))
    inputs = {
        "features": np.pad(graph.features[node_ids], ((0, size - len(node_ids)), (0, 0))),
        "edges": np.pad(new_ids[len(nodes) :].reshape(-1, 2), ((0, num_edges - len(edges)), (0, 0))).astype(np.int32),
        "targets": new_ids[: len(nodes)].astype(np.int32),
        "nodes_mask": np.arange(size) < len(node_ids),
        "edges_mask": np.arange(num_edges) < len(edges),
    }
    return inputs, graph.labels[nodes]
