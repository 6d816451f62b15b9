"""Defines the test cases of the battery for GraphAttention."""

from functools import partial

import numpy as np
import tensorflow as tf
from battery_attention import case_of_alignment
from battery_cases import BATCH, KL_OPTIONS, Case
from keras import ops
from log_laplace import LogLaplace
from twins import twin_divergence

from keras_vattn import ContextualPrior, GammaPrior, GraphAttention, LogNormal, Weibull

HEADS, WIDTH = 2, 4


class GraphCase(Case):
    """A test case for GraphAttention. The batch is one graph with equal numbers of edges and nodes, because `fit` with
    arrays needs equal lengths."""

    rows_are_independent = False

    def arrays(self, batch=BATCH, steps=None, seed=0):
        nodes = np.random.default_rng(seed).normal(size=(batch, WIDTH))
        # Most nodes have an edge from the previous node. Node 1 has two edges, and one edge is a self-loop.
        source = np.arange(batch) - 1
        target = np.arange(batch)
        source[0], target[0] = batch - 1, 1
        source[-1] = batch - 1
        return {"nodes": tf.constant(nodes, tf.float32), "edges": tf.constant(np.stack([source, target], 1), tf.int32)}

    def masks(self, batch=BATCH, steps=None):
        return {"edges_mask": tf.constant(np.arange(batch) != 2)}

    def expected_divergences(self, layer, arrays, masks=()):
        posterior, prior = (
            distribution(**arrays, **dict(masks))
            for distribution in (layer.posterior_distribution, layer.prior_distribution)
        )
        keys = layer.segment_keys(**arrays, **dict(masks))
        edge_divergences = twin_divergence(posterior, prior)
        valid = np.ones(edge_divergences.shape[-1], bool) if keys.valid is None else keys.valid.numpy()
        node_divergences = np.zeros(arrays["nodes"].shape[0])
        np.add.at(node_divergences, keys.row_ids.numpy()[valid], edge_divergences.sum(axis=0)[valid])
        return node_divergences

    def make_extreme(self, layer, arrays):
        largest = float(ops.max(ops.abs(layer._scored((), arrays).logits)))
        layer.source_kernel.assign(layer.source_kernel * (1e4 / largest))
        layer.target_kernel.assign(layer.target_kernel * (1e4 / largest))
        return arrays


def _graph_case(name, **options):
    make = partial(GraphAttention, **{"units": 3, "num_heads": HEADS})
    return case_of_alignment(GraphCase, f"graph-{name}", make, {"nodes": WIDTH}, options)


GRAPH_CASES = [
    _graph_case(
        "softmax",
        activation="elu",
        bad_options=(
            {"units": 0},
            {"num_heads": 0},
            {"concatenate": 1},
            {"alignment": "hardmax"},
            {"prior": "contextual"},
            {"per_head_prior": True},
            {"prior_over": "edges"},
            {"self_loops": None},
            {"negative_slope": -0.1},
            {"use_bias": "yes"},
            {"feature_dropout": 1.5},
            {"dropout": -0.1},
            *KL_OPTIONS,
        ),
    ),
    _graph_case("softmax-dropout", dropout=0.3, feature_dropout=0.3, self_loops=False),
    _graph_case(
        "weibull-contextual",
        alignment="weibull",
        prior="contextual",
        bad_options=({"prior": "uniform"}, {"alignment": "softmax"}, {"prior": GammaPrior(num_heads=HEADS + 1)}),
    ),
    _graph_case(
        "weibull-over-nodes-averaged",
        alignment=Weibull(3.0),
        prior="contextual",
        prior_over="nodes",
        per_head_prior=True,
        concatenate=False,
        self_loops=False,
        use_bias=False,
        bad_options=(
            {"prior": ContextualPrior(num_heads=HEADS)},
            {"prior": None, "per_head_prior": False},
            {"prior": "fixed", "per_head_prior": False},
            {"alignment": LogNormal(kl_of="weights")},
        ),
    ),
    _graph_case("lognormal-fixed", alignment="lognormal", prior="fixed", negative_slope=0.0, fits_float16=False),
    _graph_case("weibull-no-prior", alignment="weibull"),
    _graph_case("log-laplace", alignment=LogLaplace(), prior="contextual"),
]
