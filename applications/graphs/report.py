"""Report accuracy, calibration, uncertainty and attention statistics of a trained model.

Shapes: N nodes, M nodes of a split, C classes, S samples.
"""

import dataclasses
import functools

import numpy as np
import tensorflow as tf

import keras_vattn
from applications.common import uncertainty
from applications.common.batches import prefetched
from applications.common.methods import Uncertainty
from applications.common.option_values import first_value
from applications.common.papers import data_of_both, published_figure
from applications.common.predictor import Predictor
from applications.common.shown import Alignment, Shown, random_rows, sample_lines, verdict
from applications.common.significance import holm, mean_interval, paired_interval, paired_p
from applications.common.tables import Column, interval_text, out_of, spread, table, title_from, titled
from applications.graphs import data
from applications.graphs.model import MODELS, values_of
from applications.graphs.options import OtherGraph
from applications.graphs.serve import predicted
from keras_vattn import metrics

NUM_SHOWN, NUM_SAMPLES, NUM_ALIGNMENTS, MOST_NEIGHBOURS = 5, 20, 8, 30
NUM_DRAWS, SEED = 16, 0
# In standard deviations of each feature.
CORRUPTION = 5.0
CURVES = {"val_nll": "NLL, validation (nats)", "val_accuracy": "accuracy, validation"}


def deviation(record):
    """Return the standard deviation of sampled attention weights, in the layer with the largest value."""
    layers = record["report"]["attention"]
    return layers and spread(max(layer["weights_sd"] for layer in layers.values()))


COLUMNS = (
    Column("accuracy (%)", "report.accuracy", 2, 100.0),
    Column("NLL, validation", "history.val_nll"),
    Column("NLL (nats)", "report.nll"),
    Column("ECE", "report.ece"),
    Column("accuracy, attention sampled (%)", "report.uncertainty.attention.accuracy", 2, 100.0),
    Column("NLL, attention sampled", "report.uncertainty.attention.nll"),
    *(
        Column(f"{title}, {kind}", f"report.uncertainty.{kind}.{title.lower()}")
        for kind in ("dropout", "both")
        for title in ("NLL", "ECE", "PAvPU")
    ),
    Column("AUROC of noise, entropy", "report.noise.entropy"),
    Column("AUROC of noise, attention sampled", "report.noise.mutual_information"),
    Column("sd of the weights", deviation, differs=False),
    Column("gradient of the likelihood", "report.gradients.likelihood", differs=False),
    Column("gradient of the KL", lambda record: f"{record['report']['gradients']['kl']:.1e}", differs=False),
    Column("epochs", "epochs", 0, differs=False),
    Column("s", "train_seconds", 1, differs=False),
)


def evaluate(run, part, evaluation=None):
    """Return the report on a data split, and the predictions."""
    labels, num_draws = part.labels, first_value("num_draws", evaluation, run.options.reports)
    probabilities = predicted(run, part)
    report = {
        "num_nodes": len(labels),
        "accuracy": float(np.mean(probabilities.argmax(axis=1) == labels)),
        **uncertainty.calibration(probabilities[None], labels),
        "gradients": gradient_norms(run, part),
        "attention": attention_statistics(run, part.graph),
    }
    outputs = {"part": part, "probabilities": probabilities, "draws": None, "p_values": None}
    if num_draws:
        report["uncertainty"], predicting = {}, predictor(run, part)
        report["noise"] = noise_detection(run, part, predicting, probabilities, num_draws)
        for name in predicting.kinds:
            draws = predicting.draws(num_draws, name)
            tested = metrics.pavpu(draws, labels)
            report["uncertainty"][name] = {
                "num_draws": num_draws,
                "accuracy": float(np.mean(draws.mean(axis=0).argmax(axis=1) == labels)),
                "pavpu": tested.pavpu,
                "certain": float(tested.certain.mean()),
                **uncertainty.means(draws),
                **uncertainty.calibration(draws, labels),
            }
            outputs |= {"draws": draws, "p_values": tested.p_values}
    return report, outputs


def noise_detection(run, part, predicting, probabilities, num_draws):
    """Return the AUROC of scores that detect nodes with noisy features. One score is the entropy of a prediction. For
    stochastic attention, the mutual information is a second score. `predicting` is the `Predictor` for the features
    without noise."""
    noisy = dataclasses.replace(predictor(run, part, CORRUPTION), samplers=predicting.samplers)
    scores = {"entropy": [*map(metrics.predictive_entropy, (probabilities[None], noisy.predictions(0)["mean"]))]}
    if "attention" in predicting.kinds:
        draws = (x.draws(num_draws, "attention") for x in (predicting, noisy))
        scores["mutual_information"] = [*map(metrics.mutual_information, draws)]
    return {name: metrics.out_of_distribution_detection(*pair)["auroc"] for name, pair in scores.items()}


def predictor(run, part, corruption=0.0):
    """Return the `Predictor` of a split. `corruption` is the standard deviation of Gaussian noise that is added to each
    feature, in units of the feature's standard deviation."""
    model, inputs = run.models.prediction, part.graph.inputs
    if corruption:
        noise = np.random.default_rng(0).normal(size=part.graph.features.shape) * part.graph.features.std(axis=0)
        inputs = inputs | {"features": inputs["features"] + tf.constant(corruption * noise, tf.float32)}
    return Predictor(
        part.labels,
        prefetched(tf.data.Dataset.from_tensors(inputs)),
        model,
        lambda logits: tf.nn.softmax(tf.cast(logits[..., part.nodes, :], "float32")).numpy(),
        drawn=None if MODELS[run.options.model].distribution is None else model,
        drops=run.options.network.drops,
        max_rows=1,
    )


def other_graph(options, path, codec=None):
    """Return a `Part` with all nodes of the graph in an .npz file, without their labels."""
    part = data.read_other(options, OtherGraph(npz=path), labelled=False)
    part.graph.classes, part.graph.labels = codec and codec["classes"], np.full_like(part.graph.labels, -1)
    return part


def gradient_norms(run, part):
    """Return the norms of two gradients: of a split's log-likelihood, and of the full graph's KL."""
    labels, drops = tf.constant(part.labels), run.options.network.drops

    def log_likelihood(logits):
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.gather(logits, part.nodes))

    return uncertainty.gradient_norms(run.models.prediction, part.graph.inputs, log_likelihood, drops)


def attention_statistics(run, graph):
    """Return the entropies of weights and prior, and the standard deviation of sampled weights, for each layer. The
    values are means over heads and over nodes with incoming edges. For deterministic weights, return `None`."""
    if MODELS[run.options.model].distribution is None:
        return None
    models, edges = run.models, graph.inputs["edges"]
    has_edge = np.isin(np.arange(len(graph.labels)), graph.edges[:, 1])
    report = {}
    for name, nodes in _layer_inputs(run, graph).items():
        statistics = models.prediction.get_layer(name).alignment_statistics(nodes, edges, num_samples=16)
        report[name] = {key: float(x.numpy()[:, has_edge].mean()) for key, x in statistics.items()}
    return report


def _layer_inputs(run, graph):
    features, first = graph.inputs["features"], run.models.prediction.get_layer("first")
    return {"first": features, "second": first(features, graph.inputs["edges"])}


def files(outputs):
    part, probabilities, draws = outputs["part"], outputs["probabilities"], outputs["draws"]
    classes = part.graph.classes
    columns = {
        "node": [part.graph.name(node) for node in part.nodes],
        "class": [classes[label] for label in part.labels],
        "predicted": [classes[best] for best in probabilities.argmax(axis=1)],
    }
    numbers = {"probability": probabilities.max(axis=1)}
    if draws is not None:
        numbers |= {
            "entropy": metrics.predictive_entropy(draws),
            "mutual_information": metrics.mutual_information(draws),
            "p": outputs["p_values"],
        }
    columns |= {name: [f"{number:.4f}" for number in column] for name, column in numbers.items()}
    return {"nodes": ["\t".join(row) for row in (columns, *zip(*columns.values(), strict=True))]}


def heading(record):
    report = record["report"]
    nodes = f"{report['num_nodes']} {record['split']} nodes"
    drawn = next(iter(report.get("uncertainty", {}).values()), None)
    return nodes if drawn is None else f"{nodes}; uncertainty of {drawn['num_draws']} draws"


def example_of(part):
    return part.graph.name(part.nodes[0])


def summary(report):
    count, drawn, noise = report["num_nodes"], report.get("uncertainty", {}).get("attention"), report.get("noise")
    lines = [f"{out_of(report['accuracy'], count)} nodes have the right class."]
    if drawn:
        layers = " and ".join(f"{x['weights_sd']:.3f} ({name} layer)" for name, x in report["attention"].items())
        lines += [
            f"Sampled attention weights have a standard deviation of {layers}.",
            f"With {drawn['num_draws']} draws: {out_of(drawn['accuracy'], count)} right, NLL {drawn['nll']:.3f} nats "
            f"(without draws: {report['nll']:.3f}).",
            f"Noise detection, AUROC: draws {noise['mutual_information']:.2f}, entropy of one prediction "
            f"{noise['entropy']:.2f}, chance 0.50.",
        ]
    return lines


def shown(run, part, outputs):
    probabilities, classes, name = outputs["probabilities"], part.graph.classes, part.graph.name
    columns = {"probability": probabilities.max(axis=1)}
    if outputs["draws"] is not None:
        columns["mutual information of all samples (nats)"] = metrics.mutual_information(outputs["draws"])
    samples = []
    for row in random_rows(len(part.nodes), NUM_SAMPLES):
        label, predicted = classes[part.labels[row]], classes[probabilities[row].argmax()]
        sample = [("node", name(part.nodes[row])), ("class", label), ("predicted", predicted)]
        sample += [(title, f"{column[row]:.3f}") for title, column in columns.items()]
        samples.append([*sample, verdict("" if predicted == label else f"{label} is right")])
    return Shown(samples, _alignments(run, part.graph, part.nodes[random_rows(len(part.nodes), NUM_ALIGNMENTS)]))


def _alignments(run, graph, nodes):
    model, edges = run.models.prediction, graph.inputs["edges"]
    weights, spread, alignments = {}, {}, []
    for layer, features in _layer_inputs(run, graph).items():
        attend = functools.partial(model.get_layer(layer), features, edges, return_attention_scores=True)
        weights[layer], draws = attend()[1].numpy(), []
        for draw in range(NUM_DRAWS if MODELS[run.options.model].distribution else 0):
            with keras_vattn.posterior_draws(model, seed=[SEED, draw]):
                draws.append(attend()[1].numpy())
        if draws:
            spread[layer] = np.std(draws, axis=0)
    # The attention weights end with the weights of one self-loop per node.
    ends = np.concatenate([graph.edges, np.repeat(np.arange(len(graph.labels))[:, None], 2, axis=1)])
    for node in nodes:
        links = np.flatnonzero(ends[:, 1] == node)
        heaviest = np.argsort(-weights["second"][:, links].mean(axis=0), kind="stable")[:MOST_NEIGHBOURS]
        links = links[np.sort(heaviest)]
        title, source = _named(graph, node), [_named(graph, neighbour) for neighbour in ends[links, 0]]
        panels = ({f"{layer} layer": x[:, None, links] for layer, x in layers.items()} for layers in (weights, spread))
        panels = ({layer: x[0] if len(x) == 1 else x for layer, x in layers.items()} for layers in panels)
        alignments.append(Alignment(title, [title], *panels, source=source))
    return alignments


def _named(graph, node):
    label = graph.labels[node]
    return f"{graph.name(node)}:{graph.classes[label] if label >= 0 else '?'}"


def report(run, part, record, outputs, shown):
    values = ", ".join(f"{name} {value:g}" for name, value in values_of(run.options).items())
    lines = [f"attention: {values}, kl_weight {run.options.alignment.kl_weight:g}", ""] if values else []
    if outputs["draws"] is not None:
        curves = {"mean": outputs["probabilities"][None], "draws": outputs["draws"]}
        path = run.folder.file("uncertainty.png")
        keras_vattn.plots.risk_coverage_curve(curves, part.labels, metrics.predictive_entropy, path=path)
    return lines + sample_lines(shown.samples, NUM_SHOWN)


def fan(comparison):
    """Return Table 1 of Fan et al. 2020: the published accuracies, ours, and paired tests."""
    values = {name: [100.0 * x["report"]["accuracy"] for x in runs] for name, runs in comparison.records.items()}
    baseline, options = comparison.options.baseline, {run.name: run.options for run in comparison.planned}
    compared = [name for name in values if name != baseline] if baseline in values else []
    # With a single seed, p-values are NaN, and the table shows a dash.
    p_values = {name: paired_p(values[name], values[baseline]) for name in compared}
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    rows = []
    for name, accuracies in values.items():
        paper = published_figure("fan_1", options[name].model, options[name].alignment.published)
        sd = f"{np.std(accuracies, ddof=1):.2f}" if len(accuracies) > 1 else "-"
        row = [title_from(name, lambda model: MODELS[model].title), paper]
        row += [interval_text(mean_interval(accuracies), 2), sd, "-", "-", "-"]
        if name in corrected:
            difference = interval_text(paired_interval(accuracies, values[baseline]), 2)
            row[-3:] = difference, *("-" if np.isnan(p) else f"{p:.3f}" for p in (p_values[name], corrected[name]))
        rows.append(row)
    heads = ("attention", "paper", "here", "sd", f"difference from {baseline}", "p, paired t", "p, Holm")
    return [titled(f"Table 1 of Fan et al. 2020; {data_of_both('fan_1', comparison.records)}", table(heads, rows))]


LAYOUTS = {"fan": fan, "uncertainty": Uncertainty(predictor, other_graph, CORRUPTION)}
