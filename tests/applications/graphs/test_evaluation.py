"""Reports, criteria for the best weights, the exported model, and the table with paired tests."""

import numpy as np
import pytest
import tensorflow as tf
from application_cases import Compared, changed, tables_of
from graphs_cases import APPLICATION, run_of

from applications.common.errors import InputError
from applications.common.significance import holm, paired_p
from applications.graphs import report as reports
from applications.graphs.options import CompareGraphs, EvaluateGraphs, PredictGraphs
from applications.graphs.report import evaluate, fan, predictor
from applications.graphs.serve import Classifier, predicted
from applications.graphs.train import criterion_of
from keras_vattn import metrics


@pytest.mark.slow
def test_a_report(tmp_path, eagerly):
    run = run_of(tmp_path, model="wc", num_draws=3)
    part = run.data["test"]
    report, _ = evaluate(run, part)
    probabilities = predicted(run, part)
    logits = run.models.prediction(part.graph.inputs).numpy()[part.nodes]
    np.testing.assert_allclose(probabilities, tf.nn.softmax(logits), rtol=1e-5)
    assert report["accuracy"] == np.mean(probabilities.argmax(axis=1) == part.nodes % 3)
    nll = -np.log(probabilities[np.arange(6), part.nodes % 3]).mean()
    np.testing.assert_allclose(report["nll"], nll, rtol=1e-5)
    assert list(report["uncertainty"]) == ["dropout", "attention", "both"]
    assert report["gradients"]["likelihood"] > 0 and report["gradients"]["kl"] > 0 and report["attention"]
    without_draws, _ = evaluate(run, part, EvaluateGraphs(run="out", num_draws=0))
    assert without_draws == {name: report[name] for name in report.keys() - {"uncertainty", "noise"}}
    assert APPLICATION.summary(report)[0] == f"{round(6 * report['accuracy'])} of 6 nodes have the right class."


def test_alignments_of_neighbours(tmp_path, eagerly, monkeypatch):
    """Alignments list the neighbours of a node, itself last, for each head of each layer; of many neighbours, those
    with the largest weights in the last layer."""
    run = run_of(tmp_path, model="wc", num_draws=0)
    part = run.data["test"]
    _, outputs = evaluate(run, part)
    alignments = APPLICATION.shown(run, part, outputs).alignments
    layer = run.models.prediction.get_layer("first")
    _, weights = layer(part.graph.inputs["features"], part.graph.inputs["edges"], return_attention_scores=True)
    sources, targets = part.graph.edges.T
    for alignment in alignments:
        node = part.graph.names.index(alignment.title.partition(":")[0])
        neighbours = [*sources[targets == node], node]
        assert alignment.source == [f"n{neighbour}:{'abc'[neighbour % 3]}" for neighbour in neighbours]
        columns = [*np.flatnonzero(targets == node), len(sources) + node]
        np.testing.assert_allclose(alignment.weights["first layer"][:, 0], weights.numpy()[:, columns], atol=1e-6)
        np.testing.assert_allclose(alignment.weights["second layer"].sum(axis=-1), 1.0, rtol=1e-5)
    monkeypatch.setattr(reports, "MOST_NEIGHBOURS", 2)
    for alignment_of_all, shortened in zip(alignments, APPLICATION.shown(run, part, outputs).alignments, strict=True):
        heaviest = np.sort(np.argsort(-alignment_of_all.weights["second layer"][0], kind="stable")[:2])
        assert shortened.source == [alignment_of_all.source[place] for place in heaviest]


@pytest.mark.slow
def test_noise_detection(tmp_path, monkeypatch):
    """The AUROCs compare the predictor with and without noise; deterministic attention has no draws."""
    run = run_of(tmp_path, model="wc", weibull_k=1.0, num_draws=0)
    part = run.data["test"]
    clean, noisy = predictor(run, part), predictor(run, part, reports.CORRUPTION)
    noise = reports.noise_detection(run, part, predictor(run, part), predicted(run, part), 5)
    scores = (metrics.mutual_information(x.draws(5, "attention")) for x in (clean, noisy))
    assert noise["mutual_information"] == metrics.out_of_distribution_detection(*scores)["auroc"]
    scores = (metrics.predictive_entropy(x.predictions(0)["mean"]) for x in (clean, noisy))
    assert noise["entropy"] == metrics.out_of_distribution_detection(*scores)["auroc"]
    run = run_of(tmp_path, model="gat", num_draws=0)
    assert list(reports.noise_detection(run, part, predictor(run, part), predicted(run, part), 5)) == ["entropy"]


def test_predictions_after_adding_nodes(tmp_path):
    """Predictions keep the classes and feature scaling of the training."""
    run = run_of(tmp_path, model="gat", scale_features="columns")
    (tmp_path / "input.txt").write_text("n3\nn4\n")
    options = PredictGraphs(run=str(tmp_path), input=str(tmp_path / "input.txt"))
    before = list(APPLICATION.generate(run, options))
    with open(run.options.graph.nodes, "a") as file:
        file.write("n24,,,1000,0,5\n")
    assert list(APPLICATION.generate(run, options)) == before
    with open(run.options.graph.nodes, "a") as file:
        file.write("n25,B,,0,0,0\n")
    with pytest.raises(InputError, match="the graph has the class B; the classes of the model are a, b, c"):
        list(APPLICATION.generate(run, options))


def test_predictions_for_another_graph(tmp_path):
    """Nodes of another graph need no labels."""
    run = run_of(tmp_path, model="gat", scale_features="columns")
    paths = {name: str(tmp_path / f"{name}.csv") for name in ("nodes", "edges", "input")}
    options = PredictGraphs(run=str(tmp_path), input=paths.pop("input"), **paths)
    lines = {"nodes": "third,node,first,second\n0.5,x,1,0\n0.1,y,0,1\n", "edges": "x,y\n", "input": "y\n"}
    for name, text in lines.items():
        (tmp_path / f"{name}.csv").write_text(text)
    lines_of_nodes = list(APPLICATION.generate(run, options))
    features = (np.array([[1, 0, 0.5], [0, 1, 0.1]]) - run.codec["scaling"]["mean"]) / run.codec["scaling"]["sd"]
    inputs = {"features": tf.constant(features, tf.float32), "edges": tf.constant([[0, 1], [1, 0]])}
    probabilities = tf.nn.softmax(run.models.prediction(inputs)[1]).numpy()
    order = np.argsort(-probabilities)
    assert lines_of_nodes == ["\t".join(f"{'abc'[label]} {probabilities[label]:.4f}" for label in order)]
    (tmp_path / "input.csv").write_text("y\n\n")
    assert list(APPLICATION.generate(run, options)) == [*lines_of_nodes, ""]


def test_statistics_of_the_attention(tmp_path):
    """The statistics average over nodes with neighbours, here all nodes of a ring; deterministic models have no
    statistics."""
    precise, noisy = (run_of(tmp_path, model="no_kl", weibull_k=k, num_draws=0) for k in (1e6, 1.0))
    for name in ("first", "second"):
        deviations = [evaluate(run, run.data["test"])[0]["attention"][name]["weights_sd"] for run in (precise, noisy)]
        assert deviations[0] < 1e-3 < 0.05 < deviations[1]
    run = run_of(tmp_path, model="gat", num_draws=0)
    report, _ = evaluate(run, run.data["test"])
    assert report["attention"] is None and report["gradients"]["kl"] == 0.0
    assert predictor(run, run.data["test"]).kinds == ["dropout"]


@pytest.mark.slow
def test_the_exported_model(tmp_path):
    run = run_of(tmp_path, model="wc", scale_features="rows")
    graph, classifier = run.data["test"].graph, Classifier(run)
    assert classifier.names == ("predict", "sample")
    # Unscaled features, as in the file.
    features, edges = 3.0 * graph.features, graph.edges
    predicted_nodes = classifier.predict(features, edges)
    expected = tf.nn.softmax(run.models.prediction(graph.inputs)).numpy()
    np.testing.assert_allclose(predicted_nodes["probabilities"], expected, rtol=1e-4)
    assert [name.decode() for name in predicted_nodes["classes"].numpy()] == [
        "abc"[label] for label in expected.argmax(axis=1)
    ]
    drawn = classifier.sample(features, edges, 5, 1)
    assert drawn["draws"].shape == (5, 24, 3)
    np.testing.assert_allclose(drawn["probabilities"], drawn["draws"].numpy().mean(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(drawn["draws"], classifier.sample(features, edges, 5, 1)["draws"])
    assert np.any(drawn["draws"] != classifier.sample(features, edges, 5, 2)["draws"])
    assert (drawn["mutual_information"].numpy() > -1e-6).all()
    assert (drawn["mutual_information"].numpy() <= drawn["entropy"].numpy() + 1e-6).all()
    with pytest.raises(tf.errors.InvalidArgumentError, match="edges: expected nodes below N"):
        classifier.predict(features, [[0, 24]])


HISTORY = [(0.5, 1.0), (0.6, 1.1), (0.6, 0.9), (0.5, 0.8), (0.5, 0.85), (0.7, 0.9), (0.7, 0.7)]


@pytest.mark.parametrize(
    ("criterion", "best", "waited"),
    [("published", 6, 0), ("accuracy", 6, 0), ("nll", 6, 0)],
)
def test_criteria(criterion, best, waited):
    rows = []
    for accuracy, nll in HISTORY:
        rows.append({"val_accuracy": accuracy, "val_nll": nll, **criterion_of(criterion, rows, accuracy, nll)})
    scores = [row["val_best"] for row in rows]
    waits = [row["val_better"] for row in rows]
    assert int(np.argmin(scores)) == best and len(rows) - 1 - int(np.argmin(waits)) == waited
    if criterion == "published":
        # Accuracy and NLL are both best in epochs 1, 3 and 7; at least one is best in all epochs but the fifth.
        assert scores == [-1, -1, -2, -2, -2, -2, -3]
        assert waits == [-1, -2, -3, -4, -4, -5, -6]
    elif criterion == "accuracy":
        assert int(np.argmin(scores[:5])) == 2
    else:
        assert scores == [nll for _, nll in HISTORY]


def test_holm():
    """The four tests of Holm 1979: the smallest p-value is multiplied by four, and corrected values never decrease."""
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.9, 0.8]), [1.0, 1.0])
    corrected = holm([0.02, float("nan"), 0.03])
    np.testing.assert_allclose(corrected[::2], [0.04, 0.04])
    assert np.isnan(corrected[1]) and holm([]) == []


def test_paired_p():
    first, second = np.array([1.0, 2.0, 4.0, 3.0]), np.array([0.5, 1.0, 3.5, 2.0])
    # t = mean / (sd / 2), three degrees of freedom.
    np.testing.assert_allclose(paired_p(first, second), 0.013847, rtol=1e-3)
    assert paired_p(first, first) == 1.0 and np.isnan(paired_p(first, first - 1.0))
    assert np.isnan(paired_p([1.0], [2.0]))


def test_the_table_of_the_paper(tmp_path):
    models = ("gat:published=cora", "wf:published=cora", "wc")
    options = changed(CompareGraphs(), out=str(tmp_path / "out"), models=models, baseline=models[0], seeds=4)
    options.train_values = {"npz": __file__}
    values = ([0.80, 0.81, 0.82, 0.81], [0.80, 0.81, 0.82, 0.81], [0.82, 0.825, 0.84, 0.82])
    accuracies = dict(zip(models, values, strict=True))
    records = {name: [{"report": {"accuracy": value}} for value in row] for name, row in accuracies.items()}
    (table,) = tables_of("\n\n".join(fan(Compared(APPLICATION, options, records)))).values()
    gat, wf, wc = table
    assert (gat["attention"], gat["paper"]) == ("GAT (published=cora)", "83.00") and wc["paper"] == "-"
    assert (gat["sd"], gat["p, Holm"]) == ("0.82", "-")
    assert gat["here"].startswith("81.00 [") and wc["here"].startswith("82.62 [")
    assert (wf[f"difference from {models[0]}"], wf["p, paired t"], wf["p, Holm"]) == (
        "0.00 [0.00, 0.00]",
        "1.000",
        "1.000",
    )
    p = paired_p(accuracies["wc"], accuracies[models[0]])
    assert (wc["p, paired t"], wc["p, Holm"]) == (f"{p:.3f}", f"{2 * p:.3f}")
