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

NUM_SHOWN = 5
# Classes of a line of `predict`, the most probable ones.
NUM_CLASSES = 3


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
        graph = dataclasses.replace(options.graph, planetoid=None, scale_features=options.graph.scaling, **files)
        return data.load_other(graph, labelled)

    def build(self, options, codec):
        return model.build(options, codec["width"], len(codec["classes"]))

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
            best = np.argsort(-probabilities)[:NUM_CLASSES]
            yield "\t".join(f"{graph.classes[each]} {probabilities[each]:.4f}" for each in best)

    def endpoints(self, run, options=None):
        classifier = Classifier(run)
        return classifier, classifier.names


APPLICATION = Graphs()
