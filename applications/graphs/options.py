"""Options of the classification of nodes. The presets are in presets/, the published values of the attention in
published.yaml."""

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
    """Raise `InputError` unless the files are of one graph."""
    if (options.nodes is None) != (options.edges is None):
        raise InputError("--nodes and --edges belong together; one of them is missing.")
    if options.npz is not None and options.nodes is not None:
        raise InputError("--nodes: --npz names the graph; leave out one of the two.")


@dataclasses.dataclass
class GraphOptions:
    """Graph; without files, a graph of neighbours of scikit-learn's digits"""

    npz: common.File | None = None
    """NumPy archive: features as feat_data, feat_indices, feat_indptr, feat_shape (rows compressed) or as features;
    edges (E, 2); labels, -1 for unknown; perhaps train_idx, val_idx, test_idx. tools/convert_planetoid.py makes one
    of Planetoid's files."""
    nodes: common.File | None = None
    """CSV with a header: the column node, a name; label, empty where it is unknown; perhaps split, which is train,
    valid, test or empty; all other columns are features."""
    edges: common.File | None = None
    """CSV of two names of nodes a line, source and target; a header is allowed."""
    directed: bool = False
    """Give an edge to its target alone; otherwise an edge has both directions."""
    scale_features: Literal["auto", "rows", "columns", "none"] = "auto"
    """rows: divide the features of a node by the sum of their sizes, as published for counts of words. columns:
    subtract the mean of each feature, divide by its standard deviation. auto: columns for --nodes, otherwise rows."""
    train_per_class: common.Positive = 20
    """Training nodes of each class, where the data have no splits."""
    num_valid: common.Positive = 500
    """Validation nodes, where the data have no splits."""
    num_test: common.NotNegative = 1000
    """Test nodes, where the data have no splits: at most so many of the nodes that are left."""

    @property
    def scaling(self):
        """The scaling that `scale_features` means for these files."""
        if self.scale_features != "auto":
            return self.scale_features
        return "rows" if self.nodes is None else "columns"

    check = check_sources


@dataclasses.dataclass
class NetworkOptions:
    """Network; the defaults are the values of Velickovic et al. 2018 for Cora"""

    units: common.Positive = 8
    """Width of a head of the first layer."""
    num_heads: common.Positive = 8
    """Heads of the first layer, side by side."""
    output_heads: common.Positive = 1
    """Heads of the second layer, averaged."""
    feature_dropout: common.Dropout = 0.6
    """Rate of dropout on the inputs of both layers."""
    coefficient_dropout: common.Dropout = 0.6
    """Rate of dropout on the attention weights."""
    l2: common.NotNegativeFloat = 5e-4
    """Factor on half the sum of the squares of weights."""
    l2_of: Literal["all", "kernels"] = "all"
    """Weights that l2 is about; all: biases and the network of the prior too, as published."""

    @property
    def drops(self):
        return max(self.feature_dropout, self.coefficient_dropout) > 0


@dataclasses.dataclass
class AlignmentOptions(PublishedOptions):
    """Attention; none for the paper's value for the model and the data set, or the general one"""

    published: Literal[tuple(PUBLISHED)] = "general"
    """Data set whose published values the models take; general: values of this program, with which the KL pulls."""
    prior_hidden_units: common.Positive | None = None
    """Width of the network that reads a contextual prior off the projected nodes."""
    per_head_prior: bool = True
    """Give each head a network of its own, as published."""
    prior_over: Literal["neighbourhood", "nodes"] = "neighbourhood"
    """A contextual prior sums to one over the neighbourhood, or over all nodes as in the published code."""
    kl_reduction: Literal["sum", "query_mean", "mean"] = "sum"
    """sum: over all edges and heads, averaged over the nodes. query_mean: averaged over the nodes that have an edge.
    mean: divided by all edges and heads of both layers together, as in the published code."""


@dataclasses.dataclass
class SamplingOptions:
    """Mini-batches; without them a step sees the whole graph, whatever --batch-size is"""

    neighbors: tuple[common.Positive, ...] = ()
    """10 10: a training step has batch_size training nodes, ten drawn neighbours of each, and ten of each of these.
    Reports see all."""

    def check(self):
        if len(self.neighbors) not in (0, 2):
            raise InputError(f"--neighbors: one number for each of the two layers. Received: {len(self.neighbors)}")


@dataclasses.dataclass
class ReportOptions:
    """Reports"""

    criterion: Literal["published", "accuracy", "nll"] = "published"
    """Measure on validation that keeps weights and stops early. published: keep an epoch whose accuracy and NLL are the
    best so far; stop where neither has been. accuracy: the best one, the lower NLL of equals. nll: the lowest."""
    num_draws: common.NoneOrSeveral = 20
    """Draws behind the uncertainty metrics, 2 at least; 0 for none of them. Only figures of equal numbers compare."""


@dataclasses.dataclass
class Options:
    """Train a classifier of the nodes of a graph; without a graph, of scikit-learn's digits."""

    model: Literal[MODELS] = "wc"
    """One of the models of Fan et al. 2020, Table 1."""
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
            raise InputError("--strategy: a graph is one batch, which replicas cannot share.")
        published = self.alignment.published
        if published != "general" and self.graph.npz is None and self.graph.nodes is None:
            raise InputError(f"--published: {published} is the name of a graph; give --npz, or --nodes and --edges.")


@dataclasses.dataclass
class OtherGraph:
    """Files of another graph."""

    npz: common.File | None = None
    """Another graph of the same features and classes, as `train --npz` reads it."""
    nodes: common.File | None = None
    """Another graph, as `train --nodes` reads it; `predict` needs no labels."""
    edges: common.File | None = None
    """Its edges."""

    check = check_sources


@dataclasses.dataclass
class EvaluateGraphs(OtherGraph, common.EvaluateOptions):
    """Report on a part of the nodes of a run's graph, or on all labelled nodes of another graph."""

    num_draws: common.NoneOrSeveral | None = None
    """Draws behind the uncertainty metrics instead of the run's."""


@dataclasses.dataclass
class PredictGraphs(OtherGraph, common.GenerateOptions):
    """Classify nodes of a run's graph, or of another: a name, or a number from 0 on where nodes have none, a line."""


@dataclasses.dataclass
class OtherNodes:
    """Other nodes and corrupted ones: a model should be less sure of both."""

    other: common.File | None = None
    """An .npz of another graph, as `evaluate --npz` reads it; its labels mean nothing."""
    corruption: common.NotNegativeFloat | None = None
    """Noise on the features of test data, in standard deviations of a feature; 5 where it is left out, 0 for none."""


@dataclasses.dataclass
class UncertaintyGraphs(OtherNodes, common.UncertaintyOptions):
    """Compare draws of a run with its mean and a fitted temperature, on test, other and corrupted data."""


@dataclasses.dataclass
class CompareGraphs(OtherNodes, common.CompareClassesOptions):
    """Train models with several seeds, and print tables with differences and intervals. Options
    of `train` are options of every run."""

    out: str = "runs/graphs_compare"
    models: tuple[str, ...] = MODELS
    baseline: str = "gat"
    layout: tuple[Literal["fan", "uncertainty"], ...] = ("fan",)
    """Also Table 1 of Fan et al. 2020, with paired tests; what the uncertainty of the models is worth."""


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
