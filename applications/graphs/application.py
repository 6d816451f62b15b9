"""The classification of the nodes of a graph as a program."""

import dataclasses

import keras
import numpy as np

from applications.common.application import Application
from applications.common.errors import InputError
from applications.graphs import data, model, plots, tables
from applications.graphs.evaluation import evaluate, predicted
from applications.graphs.generation import Classifier
from applications.graphs.options import PROGRAM
from applications.text.readers import read_input
from keras_vattn import metrics

NUM_SHOWN = 5


class Graphs(Application):
    """Graph attention networks, of Velickovic et al. 2018 and Fan et al. 2020."""

    program = PROGRAM
    columns = tables.COLUMNS
    curves = {"val_nll": "NLL, validation (nats)", "val_accuracy": "accuracy, validation"}
    layouts = {"fan": tables.fan}

    def read(self, options):
        return data.load(options)

    def codec(self, options, parts):
        graph = parts["train"].graph
        width = graph.features.shape[1]
        return {"classes": graph.classes, "width": width, "columns": graph.columns, "scaling": graph.scaling}

    def encode(self, options, codec, part, training=False):
        return data.fitted(part, codec)

    def read_other(self, options, evaluation, labelled=True):
        if evaluation.npz is None and evaluation.nodes is None:
            return None
        files = {name: getattr(evaluation, name) for name in ("npz", "nodes", "edges")}
        graph = dataclasses.replace(options.graph, planetoid=None, scale_features=options.graph.scaling, **files)
        return data.load_other(graph, labelled)

    def build(self, options, codec):
        return model.build(options, codec["width"], len(codec["classes"]))

    def compile(self, run):
        return {
            "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "metrics": [
                keras.metrics.SparseCategoricalAccuracy("accuracy"),
                keras.metrics.SparseCategoricalCrossentropy("nll", from_logits=True),
            ],
        }

    def batches(self, run, part, first_epoch=None):
        return part.batches(run.options, first_epoch)

    def num_batches(self, run, part):
        return part.num_batches(run.options)

    def score(self, row):
        return row["val_best"]

    def patience_score(self, row):
        return row["val_better"]

    def callbacks(self, run):
        return [Criterion(run)]

    def evaluate(self, run, part, evaluation=None):
        return evaluate(run, part, None if evaluation is None else evaluation.num_draws)

    def files(self, outputs):
        part, probabilities, draws = outputs["part"], outputs["probabilities"], outputs["draws"]
        classes, best = part.graph.classes, probabilities.argmax(axis=1)
        heads = ["node", "class", "predicted", "probability"]
        columns = [
            [part.graph.name(node) for node in part.nodes],
            [classes[label] for label in part.labels],
            [classes[each] for each in best],
            [f"{each:.4f}" for each in probabilities.max(axis=1)],
        ]
        if draws is not None:
            heads += ["entropy", "mutual_information", "p"]
            found = metrics.predictive_entropy(draws), metrics.mutual_information(draws), outputs["p_values"]
            columns += [[f"{each:.4f}" for each in column] for column in found]
        return {"nodes": ["\t".join(row) for row in (heads, *zip(*columns, strict=True))]}

    def heading(self, record):
        report = record["report"]
        found = f"{report['num_nodes']} {record['split']} nodes"
        drawn = next(iter(report.get("uncertainty", {}).values()), None)
        return found if drawn is None else f"{found}; uncertainty of {drawn['num_draws']} draws"

    def example_of(self, part):
        return part.graph.name(part.nodes[0])

    def report(self, run, part, record, outputs):
        values = ", ".join(f"{name} {value:g}" for name, value in model.values_of(run.options).items())
        lines = [f"attention: {values}, kl_weight {run.options.alignment.kl_weight:g}", ""] if values else []
        if outputs["draws"] is None:
            return lines
        hidden = run.models.hidden(part.graph.inputs, training=False).numpy()[part.nodes]
        plots.uncertainty(hidden, outputs, run.folder.file("uncertainty.png"))
        unknown = metrics.mutual_information(outputs["draws"])
        lines.append("the nodes that the model knows least of, by the mutual information of their draws:")
        for row in np.argsort(-unknown)[:NUM_SHOWN]:
            mean = outputs["draws"][:, row].mean(axis=0)
            guesses = ", ".join(f"{part.graph.classes[each]} {mean[each]:.2f}" for each in np.argsort(-mean)[:2])
            name, label = part.graph.name(part.nodes[row]), part.graph.classes[part.labels[row]]
            lines.append(f"node {name}, {label}: {guesses}, {unknown[row]:.3f} nats")
        return lines

    def generate(self, run, options):
        part = self.read_other(run.options, options, labelled=False)
        if part is None:
            part = next(iter(self.read(run.options).values()))
        # The file may have more nodes by now; the classes and what the features are remain those of the model.
        graph = self.encode(run.options, run.codec, part).graph
        names = {graph.name(node): node for node in range(len(graph.labels))}
        asked, place = [line.strip() for line in read_input(options)], options.input or "standard input"
        for number, name in enumerate(asked, start=1):
            if not name:
                raise InputError(f"{place}:{number}: the line is empty; expected the name of a node.")
            if name not in names:
                raise InputError(f"{place}:{number}: there is no node {name}.")
        nodes = np.array([names[name] for name in asked], np.int32)
        for probabilities in predicted(run, data.Part(graph, nodes)):
            best = np.argsort(-probabilities)[: options.num_classes]
            yield "\t".join(f"{graph.classes[each]} {probabilities[each]:.4f}" for each in best)

    def endpoints(self, run, options=None):
        classifier = Classifier(run)
        return classifier, classifier.names

    def compared(self, comparison):
        plots.accuracies(comparison, comparison.folder / "accuracy.png")
        return []


class Criterion(keras.callbacks.Callback):
    """Adds to the log what the best weights and early stopping look at: numbers that fall where an epoch is better.

    All it knows is the history, which a resumed run has.
    """

    def __init__(self, run):
        super().__init__()
        self.run = run

    def on_train_begin(self, logs=None):
        rows = self.run.folder.history()
        self.accuracy = max((row["val_accuracy"] for row in rows), default=0.0)
        self.nll = min((row["val_nll"] for row in rows), default=np.inf)
        self.best = min((row["val_best"] for row in rows), default=0.0)
        self.better = min((row["val_better"] for row in rows), default=0.0)

    def on_epoch_end(self, epoch, logs=None):
        accuracy, nll = logs["val_accuracy"], logs["val_nll"]
        criterion = self.run.options.reports.criterion
        if criterion == "published":
            at_best = accuracy >= self.accuracy, nll <= self.nll
            self.best -= all(at_best)
            self.better -= any(at_best)
        elif criterion == "accuracy":
            # Steps of accuracy are larger than what any NLL adds.
            self.best = self.better = -accuracy + 1e-6 * min(nll, 10.0)
        else:
            self.best = self.better = nll
        self.accuracy, self.nll = max(accuracy, self.accuracy), min(nll, self.nll)
        logs |= {"val_best": float(self.best), "val_better": float(self.better)}


APPLICATION = Graphs()
