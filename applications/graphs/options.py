"""Options of node classification. The presets are in presets/. The models' attention options are in published.yaml."""

import dataclasses
import pathlib
from typing import Literal

import yaml

from applications.common import options as common
from applications.common.bayesian_options import PublishedOptions
from applications.common.errors import InputError
from applications.common.program import Program

MODELS = ("gat", "no_kl", "lf", "lc", "wf", "wc")
PUBLISHED = yaml.safe_load(pathlib.Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"))


def check_sources(options):
    """Raise `InputError` unless the options name the files of a single graph."""
    if (options.nodes is None) != (options.edges is None):
        raise InputError("--nodes and --edges require each other; pass both.")
    if options.npz is not None and options.nodes is not None:
        raise InputError("expected at most one of --npz and --nodes.")


@dataclasses.dataclass
class GraphOptions:
    """Graph (default: a nearest-neighbour graph of scikit-learn's digits)"""

    npz: common.File | None = None
    """NumPy archive with the arrays features, or feat_data, feat_indices, feat_indptr and feat_shape (compressed rows);
    edges (E, 2); labels, -1 if unknown; optionally train_idx, val_idx, test_idx. tools/convert_planetoid.py converts
    the files of Planetoid."""
    nodes: common.File | None = None
    """CSV with the columns node (a name), label (empty if unknown) and optionally split (train, valid, test or empty).
    All other columns are features."""
    edges: common.File | None = None
    """CSV with two node names per line, source and target; a header is allowed."""
    directed: bool = False
    """Use each edge only from source to target; by default, each edge is used in both directions."""
    scale_features: Literal["auto", "rows", "columns", "none"] = "auto"
    """rows: divide the features of a node by the sum of their absolute values, as published for word counts. columns:
    standardize each feature. auto: columns for --nodes, otherwise rows."""
    train_per_class: common.Positive = 20
    """Number of training nodes per class, if the data have no splits."""
    num_valid: common.Positive = 500
    """Number of validation nodes, if the data have no splits."""
    num_test: common.NotNegative = 1000
    """Maximum number of test nodes, if the data have no splits."""

    @property
    def scaling(self):
        """The selected scaling: "rows", "columns" or "none"."""
        if self.scale_features != "auto":
            return self.scale_features
        return "rows" if self.nodes is None else "columns"

    check = check_sources


@dataclasses.dataclass
class NetworkOptions:
    """Network; the defaults follow Velickovic et al. 2018 for Cora"""

    units: common.Positive = 8
    """Width of each head of the first layer."""
    num_heads: common.Positive = 8
    """Number of heads of the first layer, whose outputs are concatenated."""
    output_heads: common.Positive = 1
    """Number of heads of the second layer, whose outputs are averaged."""
    feature_dropout: common.Dropout = 0.6
    """Dropout rate of the inputs of both layers."""
    coefficient_dropout: common.Dropout = 0.6
    """Dropout rate of the attention weights."""
    l2: common.NotNegativeFloat = 5e-4
    """Factor on half the sum of squared weights."""
    l2_of: Literal["all", "kernels"] = "all"
    """Weights that l2 penalizes; all includes biases and the prior network, as published."""

    @property
    def drops(self):
        return max(self.feature_dropout, self.coefficient_dropout) > 0


@dataclasses.dataclass
class AlignmentOptions(PublishedOptions):
    """Attention; the default none means the value that --published selects"""

    published: Literal[tuple(PUBLISHED)] = "general"
    """Data set whose published attention values are used. general: our own values, with which the KL has an effect."""
    prior_hidden_units: common.Positive | None = None
    """Width of the network that computes a contextual prior from the projected nodes."""
    per_head_prior: bool = True
    """Give each head its own prior network, as published."""
    prior_over: Literal["neighbourhood", "nodes"] = "neighbourhood"
    """Nodes over which a contextual prior is normalised: the neighbourhood or, as in the published code, all nodes."""
    kl_reduction: Literal["sum", "query_mean", "mean"] = "sum"
    """sum: sum over edges and heads, mean over nodes. query_mean: mean over nodes with edges. mean: mean over the edges
    and heads of both layers, as in the published code."""


@dataclasses.dataclass
class SamplingOptions:
    """Mini-batches; by default each step uses the full graph, and --batch-size has no effect"""

    neighbors: tuple[common.Positive, ...] = ()
    """Number of sampled neighbours per node. 10 10: a batch contains batch_size training nodes, ten neighbours of each,
    and ten neighbours of each neighbour. Reports use the full graph."""

    def check(self):
        if len(self.neighbors) not in (0, 2):
            raise InputError(f"--neighbors: expected 2 numbers, one per layer. Received: {len(self.neighbors)}")


@dataclasses.dataclass
class ReportOptions:
    """Reports"""

    criterion: Literal["published", "accuracy", "nll"] = "published"
    """Criterion for selecting the weights and for early stopping, on validation data. published: select an epoch if
    accuracy and NLL are both the best so far; stop if neither improves. accuracy: select the highest accuracy; if
    accuracies are equal, the lowest NLL. nll: select the lowest NLL."""
    num_draws: common.NoneOrSeveral = 20
    """Number of samples for the uncertainty metrics, at least 2, or 0 to skip them; results depend on this number."""


@dataclasses.dataclass
class Options:
    """Train a classifier of graph nodes, by default on a graph of scikit-learn's digits."""

    model: Literal[MODELS] = "wc"
    """A model in Table 1 of Fan et al. 2020."""
    run: common.RunOptions = common.group(common.RunOptions, out="runs/graphs")
    graph: GraphOptions = common.group(GraphOptions)
    network: NetworkOptions = common.group(NetworkOptions)
    alignment: AlignmentOptions = common.group(AlignmentOptions)
    sampling: SamplingOptions = common.group(SamplingOptions)
    fit: common.FitOptions = common.group(
        common.FitOptions,
        batch_size=512,
        epochs=200,
        learning_rate=5e-3,
        clip_norm=None,
        early_stopping=100,
        checkpoint_steps=None,
        tensorboard=False,
        jit="on",
    )
    reports: ReportOptions = common.group(ReportOptions)

    def check(self):
        if self.fit.strategy != "none":
            raise InputError("--strategy: expected none, since a graph is a single batch that replicas cannot share.")
        published = self.alignment.published
        if published != "general" and self.graph.npz is None and self.graph.nodes is None:
            raise InputError(f"--published: {published} requires a graph file: pass --npz, or --nodes and --edges.")


@dataclasses.dataclass
class OtherGraph:
    """Graph (default: the graph of the run)"""

    npz: common.File | None = None
    """Another graph with the same features and classes, in the format of `train --npz`."""
    nodes: common.File | None = None
    """Another graph, in the format of `train --nodes`; `predict` needs no labels."""
    edges: common.File | None = None
    """Edges of the graph in --nodes."""

    check = check_sources


@dataclasses.dataclass
class EvaluateGraphs(OtherGraph, common.EvaluateOptions):
    """Compute the metrics of a run on a split of its graph, or on all labelled nodes of another graph."""

    num_draws: common.NoneOrSeveral | None = None
    """Number of samples for the uncertainty metrics; the default is the value of the run."""


@dataclasses.dataclass
class PredictGraphs(OtherGraph, common.GenerateOptions):
    """Classify nodes of the run's graph or another graph. An input line is a node's name, or its number if unnamed."""


@dataclasses.dataclass
class OtherNodes:
    """Out-of-distribution data: the nodes of another graph, and nodes with corrupted features"""

    other: common.File | None = None
    """An .npz of another graph, in the format of `evaluate --npz`; labels are ignored."""
    corruption: common.NotNegativeFloat | None = None
    """Noise on the test features, in standard deviations of each feature; the default is 5, and 0 adds no noise."""


@dataclasses.dataclass
class UncertaintyGraphs(OtherNodes, common.UncertaintyOptions):
    """Compare sampled, mean and temperature-scaled predictions on test data, corrupted test data and --other data."""


@dataclasses.dataclass
class CompareGraphs(OtherNodes, common.CompareClassesOptions):
    """Train models with several seeds. Print their metrics and the differences from the baseline, with 95% intervals.
    The options of `train` are also accepted, and apply to every run."""

    out: str = "runs/graphs_compare"
    models: tuple[str, ...] = MODELS
    baseline: str = "gat"
    layout: tuple[Literal["fan", "uncertainty"], ...] = ("fan",)
    """Also print Table 1 of Fan et al. 2020 with paired tests, or evaluate the uncertainty of the models."""


PROGRAM = Program(
    "applications.graphs",
    {
        "train": Options,
        "evaluate": EvaluateGraphs,
        "predict": PredictGraphs,
        "compare": CompareGraphs,
        "export": common.ExportOptions,
        "uncertainty": UncertaintyGraphs,
    },
    may_change=("num_draws",),
    codec_options=("scale_features",),
)
