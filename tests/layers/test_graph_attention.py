"""Tests the formula, the masks and the edge lists of GraphAttention."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from alignment_cases import prior_of
from keras import ops

import keras_vattn
from keras_vattn import DenseKeys, GraphAttention
from keras_vattn.alignments import Dirichlet, GumbelSoftmax, LogNormal, Weibull

HEADS, UNITS, NODES, WIDTH = 2, 3, 6, 4
GENERATOR = np.random.default_rng(1)
X = GENERATOR.normal(size=(NODES, WIDTH)).astype("float32")
# Node 0 has many neighbours, node 5 has no neighbours, and (2, 2) is a self-loop.
EDGES = np.array([[1, 0], [2, 0], [3, 0], [4, 0], [0, 1], [2, 2], [1, 2], [3, 4], [5, 3]], "int32")
FAMILIES = {"weibull": Weibull, "lognormal": LogNormal, "dirichlet": Dirichlet}
STOCHASTIC = FAMILIES | {"gumbel_softmax": GumbelSoftmax}


def built(**options):
    """Return a layer with a nonzero bias. Layers with equal options have equal weights."""
    layer = GraphAttention(UNITS, HEADS, **options)
    layer.build((None, WIDTH), (None, 2))
    generator = np.random.default_rng(2)
    for weight in layer.weights:
        weight.assign(generator.normal(size=weight.shape))
    return layer


def adjacency(self_loops, edges=EDGES, count=NODES):
    """Return a matrix that is true at (i, j) if node i attends to node j."""
    matrix = np.zeros((count, count), bool)
    matrix[edges[:, 1], edges[:, 0]] = True
    return matrix | np.eye(count, dtype=bool) if self_loops else matrix


def dense_logits(layer, x=X, slope=0.2):
    """Return the projected nodes (N, H, F) and the logits (H, N, N) of all pairs, computed by NumPy."""
    value = (x @ layer.kernel.numpy()).reshape(len(x), HEADS, UNITS)
    target, source = (np.einsum("nhf,fh->hn", value, k.numpy()) for k in (layer.target_kernel, layer.source_kernel))
    logits = target[:, :, None] + source[:, None, :]
    return value, np.where(logits > 0, logits, slope * logits)


def softmax(logits, mask):
    exponentials = np.where(mask, np.exp(logits - logits.max()), 0.0)
    total = exponentials.sum(axis=-1, keepdims=True)
    return np.divide(exponentials, total, out=np.zeros_like(exponentials), where=total > 0)


def assert_close(first, second, **tolerance):
    np.testing.assert_allclose(first, second, **{"rtol": 1e-5, "atol": 1e-5, **tolerance})


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("concatenate", [True, False])
def test_the_formula(self_loops, concatenate):
    layer = built(self_loops=self_loops, concatenate=concatenate, negative_slope=0.1, activation="elu")
    value, logits = dense_logits(layer, slope=0.1)
    context = np.einsum("hij,jhf->ihf", softmax(logits, adjacency(self_loops)), value)
    context = context.reshape(NODES, -1) if concatenate else context.mean(axis=1)
    assert_close(layer(X, EDGES), keras.activations.elu(context + layer.bias.numpy()))


@pytest.mark.parametrize("self_loops", [True, False])
def test_the_weights(self_loops):
    layer = built(self_loops=self_loops)
    weights = layer(X, EDGES, return_attention_scores=True)[1].numpy()
    dense = softmax(dense_logits(layer)[1], adjacency(self_loops))
    edges = EDGES
    if self_loops:
        assert (weights[:, 5] == 0.0).all()  # the self-loop of the list
        edges = np.concatenate([EDGES, np.repeat(np.arange(NODES)[:, None], 2, axis=1)])
        weights, edges = np.delete(weights, 5, axis=1), np.delete(edges, 5, axis=0)
    assert_close(weights, dense[:, edges[:, 1], edges[:, 0]])


def test_a_node_without_an_edge_gets_the_activation_of_the_bias():
    layer = built(self_loops=False, activation="tanh", alignment="weibull", prior="contextual")
    for training in (False, True):
        assert_close(layer(X, EDGES, training=training)[5], np.tanh(layer.bias.numpy()))
    # A node without edges adds no KL, but counts as an example.
    assert_close(layer.losses[0], _sum_of_divergences(layer) / NODES)
    nothing = np.zeros((0, 2), "int32")
    assert_close(layer(X, nothing), np.tile(np.tanh(layer.bias.numpy()), (NODES, 1)))
    assert float(layer.losses[0]) == 0.0


def _sum_of_divergences(layer):
    scored = layer._scored((X, EDGES), {})
    return float(ops.sum(ops.where(scored.keys.any_valid(), layer.variational.divergence(scored, {}, 0, None), 0.0)))


@pytest.mark.parametrize(
    ("alignment", "prior_over"),
    [(alignment, "neighbourhood") for alignment in STOCHASTIC] + [(alignment, "nodes") for alignment in FAMILIES],
)
def test_the_divergence_equals_a_masked_dense_attention(alignment, prior_over):
    instance = STOCHASTIC[alignment]()
    options = {"alignment": instance, "prior": prior_of(instance, "rate", beta=2.0), "prior_over": prior_over}
    layer = built(**options, self_loops=False)
    value, logits = dense_logits(layer)
    prior, mask = layer.prior, adjacency(self_loops=False)
    hidden = np.maximum(value @ prior.hidden_kernel.numpy() + prior.hidden_bias.numpy(), 0.0)
    psi_logits = np.broadcast_to((hidden @ prior.output_kernel.numpy())[..., 0].T[:, None], logits.shape)
    psi = softmax(psi_logits, np.ones_like(mask) if prior_over == "nodes" else mask)
    keys = DenseKeys(tf.constant(mask[None]))
    log_psi = keys.zero_masked(np.log(np.where(mask, psi, 1.0)))
    logits = tf.constant(logits, tf.float32)
    q = layer.alignment.posterior(logits, keys)
    expected = q.kl_divergence(prior.distribution(layer.alignment, log_psi, logits, keys)).numpy()  # (H, N)
    layer(X, EDGES)
    assert_close(layer.losses[0], expected[:, mask.any(axis=1)].sum() / NODES, rtol=1e-4)
    # The statistics normalise Psi over the neighbours, for every `prior_over`.
    among = softmax(psi_logits, mask)
    entropy = -(among * np.log(np.where(among > 0, among, 1.0))).sum(axis=-1)
    prior_entropy = layer.alignment_statistics(X, EDGES, num_samples=2)["prior_entropy"]
    assert_close(np.sort(np.ravel(prior_entropy)), np.sort(np.ravel(entropy)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("reduction", "count"), [("sum", NODES), ("query_mean", 5), ("mean", HEADS * len(EDGES))])
def test_reductions(reduction, count):
    """Node 5 has no edge, so `query_mean` averages over five nodes."""
    layer = built(self_loops=False, alignment="weibull", prior="contextual", kl_reduction=reduction)
    layer(X, EDGES)
    assert_close(layer.losses[0], _sum_of_divergences(layer) / count)


@pytest.mark.parametrize("prior_over", ["neighbourhood", "nodes"])
def test_a_union_of_graphs_equals_the_separate_graphs(prior_over):
    """If Psi is normalised over all nodes of the call, the KL differs, but the outputs are equal."""
    layer = built(alignment="weibull", prior="contextual", prior_over=prior_over)
    graphs = [(X, EDGES), (X[:4] + 1.0, np.array([[0, 1], [1, 0], [2, 1]], "int32"))]
    outputs, losses = [], []
    for nodes, edges in graphs:
        outputs.append(layer(nodes, edges).numpy())
        losses.append(float(layer.losses[0]) * len(nodes))
    union = np.concatenate([graphs[0][1], graphs[1][1] + NODES])
    assert_close(layer(np.concatenate([graphs[0][0], graphs[1][0]]), union), np.concatenate(outputs))
    if prior_over == "neighbourhood":
        assert_close(layer.losses[0], sum(losses) / (NODES + 4))
    else:
        assert abs(float(layer.losses[0]) - sum(losses) / (NODES + 4)) > 0.1


def test_the_order_of_nodes_and_edges_does_not_matter():
    layer = built(alignment="weibull", prior="contextual")
    output, loss = layer(X, EDGES), float(layer.losses[0])
    order = GENERATOR.permutation(NODES)  # order[i] is the old name of the node i
    renamed = np.argsort(order)[EDGES].astype("int32")[GENERATOR.permutation(len(EDGES))]
    assert_close(layer(X[order], renamed), output.numpy()[order])
    assert_close(layer.losses[0], loss)


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("prior_over", ["neighbourhood", "nodes"])
def test_padding_changes_nothing(self_loops, prior_over):
    """Padded nodes are NaN, and padded edges have arbitrary indices, even outside the graph."""
    options = {"alignment": "weibull", "prior": "contextual", "prior_over": prior_over, "self_loops": self_loops}
    layer = built(**options)

    def outcome(nodes, edges, **masks):
        nodes = tf.constant(nodes)
        with tf.GradientTape() as tape:
            tape.watch(nodes)
            output, weights = layer(nodes, edges, **masks, return_attention_scores=True)
            loss = layer.losses[0] + tf.reduce_sum(output[:NODES] ** 2)
        gradients = tape.gradient(loss, [nodes, *(w.value for w in layer.trainable_weights)])
        return output, weights.numpy(), layer.losses[0], gradients

    plain = outcome(X, EDGES)
    padded_x = np.concatenate([X, np.full((2, WIDTH), np.nan, "float32")])
    padded_edges = np.concatenate([EDGES, [[-1, 10**6], [0, 1], [6, 0], [0, 7], [7, 7]]]).astype("int32")
    masks = {
        "nodes_mask": np.arange(NODES + 2) < NODES,
        # The last three edges are masked only because their nodes are masked.
        "edges_mask": np.concatenate([np.full(len(EDGES), True), [False, False, True, True, True]]),
    }
    padded = outcome(padded_x, padded_edges, **masks)
    assert_close(padded[0][:NODES], plain[0])
    assert_close(padded[0][NODES:], np.tile(layer.bias.numpy(), (2, 1)))
    assert_close(padded[2], plain[2])
    added = padded[1][:, len(EDGES) : len(EDGES) + 5]
    assert (added == 0.0).all()
    node_gradients, *weight_gradients = padded[3]
    assert (node_gradients.numpy()[NODES:] == 0.0).all()
    assert_close(node_gradients[:NODES], plain[3][0], atol=1e-4)
    for one, two in zip(weight_gradients, plain[3][1:], strict=True):
        assert_close(one, two, atol=1e-4)


def test_edges_and_heads_have_independent_draws():
    """All nodes are equal, so only the noise makes the weights of node 0's 200 neighbours differ."""
    layer = GraphAttention(2, 4, alignment="weibull", self_loops=False, seed=3)
    edges = np.stack([np.arange(1, 201), np.zeros(200)], axis=1).astype("int32")
    _, weights = layer(np.ones((201, 2), "float32"), edges, return_attention_scores=True, training=True)
    correlations = np.corrcoef(np.log(weights.numpy()))[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 5.0 / np.sqrt(200)
    assert len(np.unique(weights)) > 790


def test_dropout_of_features_and_of_weights():
    count = 4000
    layer = GraphAttention(1, feature_dropout=0.25, dropout=0.5, seed=1, use_bias=False)
    x, edges = np.ones((count, 1), "float32"), np.zeros((0, 2), "int32")
    ratios = layer(x, edges, training=True).numpy()[:, 0] / layer.kernel.numpy()[0, 0]
    # Every node attends only to itself: the ratio is 0, or the product of both dropout scales.
    np.testing.assert_allclose(ratios[ratios != 0.0], 1.0 / (0.75 * 0.5), rtol=1e-5)
    keep_rate = 0.75 * 0.5
    assert abs((ratios != 0.0).mean() - keep_rate) < 4.0 * np.sqrt(keep_rate * (1.0 - keep_rate) / count)
    assert_close(layer(x, edges), x * layer.kernel.numpy()[0, 0])


@pytest.mark.slow
def test_draws_of_a_graph():
    nodes, edges = keras.Input((WIDTH,), name="nodes"), keras.Input((2,), dtype="int32", name="edges")
    layer = GraphAttention(UNITS, HEADS, alignment="weibull", feature_dropout=0.5)
    model = keras.Model({"nodes": nodes, "edges": edges}, layer(nodes, edges))
    graph = {"nodes": X, "edges": EDGES}
    dataset = tf.data.Dataset.from_tensors(graph)
    draws = keras_vattn.posterior_predictive(model, dataset, 400, seed=1)
    # With dropout instead of posterior draws, the output of every node differs between draws.
    dropped = keras_vattn.posterior_predictive(model, dataset, 400, seed=1, dropout=True, posterior=False)
    assert (draws.std(axis=0)[1:3] > 0).all() and (dropped.std(axis=0) > 0).all()
    # Node 5 attends only to itself in every draw: only dropout changes its output.
    assert draws.std(axis=0)[5].max() < 1e-5
    assert_close(dropped.mean(axis=0)[5], model(graph)[5], atol=5 * dropped.std(axis=0)[5].max() / 20)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_node_with_very_many_neighbours(policy):
    """A half-precision sum of 10^5 small terms would stop growing, so the layer must not compute one."""
    keras.config.set_dtype_policy(policy)
    count = 10**5
    layer = GraphAttention(1, self_loops=False)
    edges = np.stack([np.arange(count), np.zeros(count)], axis=1).astype("int32")
    output = layer(np.ones((count, 1), "float32"), edges)
    expected = layer.kernel.numpy()[0, 0]
    np.testing.assert_allclose(ops.cast(output[0, 0], "float32"), expected, rtol=0.005)


def test_no_array_of_all_nodes_by_all_nodes_is_created():
    """An array of all nodes by all nodes would have 4e10 entries, which do not fit into memory."""
    count = 200_000
    layer = GraphAttention(2, alignment="weibull", prior="contextual")
    edges = GENERATOR.integers(count, size=(1000, 2)).astype("int32")
    output = tf.function(lambda x, e: layer(x, e, training=True))(np.ones((count, 3), "float32"), edges)
    assert output.shape == (count, 2)


@pytest.mark.slow
def test_replicas_with_a_graph_each(two_replicas):
    """The mean loss of two graphs is the loss of their union, and each replica has its own draws."""
    with two_replicas.scope():
        layer = built(alignment="weibull", prior="contextual")
    single = built(alignment="weibull", prior="contextual")
    graphs = [X, X[::-1] + 1.0]

    def distributed(values):
        def value(context):
            return tf.constant(values[context.replica_id_in_sync_group])

        return two_replicas.experimental_distribute_values_from_function(value)

    def step(nodes, training):
        output = layer(nodes, tf.constant(EDGES), training=training)
        return output, layer.losses[0]

    def run(nodes, training):
        results = tf.function(lambda nodes: two_replicas.run(step, (nodes, training)))(distributed(nodes))
        return [two_replicas.experimental_local_results(x) for x in results]

    losses = run(graphs, False)[1]
    single(np.concatenate(graphs), np.concatenate([EDGES, EDGES + NODES]))
    assert_close((losses[0] + losses[1]) / 2, single.losses[0])
    outputs = run([X, X], True)[0]
    assert np.any(outputs[0].numpy() != outputs[1].numpy())


@pytest.mark.parametrize(
    ("nodes", "edges", "masks", "received"),
    [
        (X[None], EDGES, {}, r"nodes\.shape=\(1, 6, 4\)"),
        (X, EDGES.T, {}, r"edges\.shape=\(2, 9\)"),
        (X, EDGES[0], {}, r"edges\.shape=\(2,\)"),
        (X, EDGES, {"nodes_mask": np.ones(5, bool)}, r"nodes_mask\.shape=\(5,\)"),
        (X, EDGES, {"edges_mask": np.ones((9, 2), bool)}, r"edges_mask\.shape=\(9, 2\)"),
        (X, EDGES.astype("float32"), {}, "float32"),
    ],
)
def test_bad_inputs(nodes, edges, masks, received):
    layer = GraphAttention(2)
    with pytest.raises(ValueError, match=f"Received: .*{received}"):
        layer(nodes, edges, **masks)
    with pytest.raises(ValueError, match=f"Received: .*{received}"):
        built()(*(keras.KerasTensor(x.shape, x.dtype.name) for x in (nodes, edges)), **masks)


def test_masks_come_from_the_previous_layer():
    ids = np.array([1, 2, 3, 0], "int32")  # 0 is padding
    embedding = keras.layers.Embedding(4, WIDTH, mask_zero=True)
    layer, edges = built(alignment="weibull", prior="contextual"), np.array([[0, 1], [3, 1]], "int32")
    nodes, number = keras.Input((), dtype="int32"), keras.Input((2,), dtype="int32")
    model = keras.Model([nodes, number], layer(embedding(nodes), number))
    x = embedding(ids)
    assert_close(model([ids, edges])[:3], layer(keras.ops.array(x)[:3], edges[:1])[:3])
