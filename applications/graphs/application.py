"""The classification of the nodes of a graph as a program."""

import dataclasses

import numpy as np

from applications.common.application import Application
from applications.common.errors import InputError
from applications.graphs import data, model, plots, tables
from applications.graphs.evaluation import evaluate, predicted
from applications.graphs.generation import Classifier
from applications.graphs.options import PROGRAM
from applications.text.readers import read_input
from keras_vattn import metrics

# Nodes in report.txt, and classes of a line of `predict`.
NUM_SHOWN, NUM_CLASSES = 5, 3


class Graphs(Application):
    """Graph attention networks, of Velickovic et al. 2018 and Fan et al. 2020."""

    program = PROGRAM
    columns = tables.COLUMNS
    curves = {"val_nll": "NLL, validation (nats)", "val_accuracy": "accuracy, validation"}
    layouts = {"fan": tables.fan}

    def read(self, options):
        return data.load(options)

    def encode(self, options, codec, part, training=False):
        return data.fitted(part, codec)

    def read_other(self, options, evaluation, labelled=True):
        if evaluation.npz is None and evaluation.nodes is None:
            return None
        files = {name: getattr(evaluation, name) for name in ("npz", "nodes", "edges")}
        graph = dataclasses.replace(options.graph, scale_features=options.graph.scaling, **files)
        return data.load_other(graph, labelled)

    def build(self, options, codec):
        return model.build(options, codec["width"], len(codec["classes"]))

    def evaluate(self, run, part, evaluation=None):
        return evaluate(run, part, None if evaluation is None else evaluation.num_draws)

    def files(self, outputs):
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

    def heading(self, record):
        report = record["report"]
        nodes = f"{report['num_nodes']} {record['split']} nodes"
        drawn = next(iter(report.get("uncertainty", {}).values()), None)
        return nodes if drawn is None else f"{nodes}; uncertainty of {drawn['num_draws']} draws"

    def example_of(self, part):
        return part.graph.name(part.nodes[0])

    def report(self, run, part, record, outputs):
        values = ", ".join(f"{name} {value:g}" for name, value in model.values_of(run.options).items())
        lines = [f"attention: {values}, kl_weight {run.options.alignment.kl_weight:g}", ""] if values else []
        if outputs["draws"] is None:
            return lines
        graph = part.graph
        hidden = run.models.hidden(graph.inputs, training=False).numpy()[part.nodes]
        plots.uncertainty(hidden, outputs, run.folder.file("uncertainty.png"))
        unknown, mean = metrics.mutual_information(outputs["draws"]), outputs["draws"].mean(axis=0)
        lines.append("the nodes that the model knows least of, by the mutual information of their draws:")
        for row in np.argsort(-unknown)[:NUM_SHOWN]:
            guesses = ", ".join(f"{graph.classes[each]} {mean[row, each]:.2f}" for each in np.argsort(-mean[row])[:2])
            name, label = graph.name(part.nodes[row]), graph.classes[part.labels[row]]
            lines.append(f"node {name}, {label}: {guesses}, {unknown[row]:.3f} nats")
        return lines

    def generate(self, run, options):
        part = self.read_other(run.options, options, labelled=False)
        if part is None:
            part = next(iter(self.read(run.options).values()))
        # The file may have more nodes by now; classes and scale are the model's.
        graph = self.encode(run.options, run.codec, part).graph
        numbers = {graph.name(node): node for node in range(len(graph.labels))}
        names, place = [line.strip() for line in read_input(options)], options.input or "standard input"
        for line, name in enumerate(names, start=1):
            if name not in numbers:
                problem = f"there is no node {name}." if name else "the line is empty; expected the name of a node."
                raise InputError(f"{place}:{line}: {problem}")
        nodes = np.array([numbers[name] for name in names], np.int32)
        for probabilities in predicted(run, data.Part(graph, nodes)):
            best = np.argsort(-probabilities)[:NUM_CLASSES]
            yield "\t".join(f"{graph.classes[each]} {probabilities[each]:.4f}" for each in best)

    def endpoints(self, run, options=None):
        classifier = Classifier(run)
        return classifier, classifier.names


APPLICATION = Graphs()
