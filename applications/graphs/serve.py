"""Classify the nodes of a graph, given its features and edges. `Classifier` can be exported as a SavedModel.

Shapes: N nodes, D features, E edges, C classes, S samples.
"""

import numpy as np
import tensorflow as tf

from applications.common.errors import InputError
from applications.common.serving import Untracked, in_graph, noise_of
from applications.graphs import data
from applications.text.readers import aligned, has_word, read_input
from keras_vattn.metrics.in_graph import predictive_statistics

# `predict` writes this many classes for each node, the most probable class first.
NUM_CLASSES = 3


class Classifier(tf.Module):
    """Exports the endpoint `predict` and, if attention or dropout is random, the endpoint `sample`. `edges` are
    distinct (source, target) pairs without self-loops. An undirected edge is two pairs. Both endpoints scale the
    `features` as in training."""

    def __init__(self, run):
        super().__init__(name="classifier")
        model, options = run.models.prediction, run.options
        self.classes = tf.constant(run.codec["classes"])
        self.variables_of_model = [variable.value for variable in model.variables]
        self._model, self._scaling = Untracked(model), options.graph.scaling
        if self._scaling == "columns":
            scaling = run.codec["scaling"]
            self._mean, self._sd = (tf.constant(scaling[name], tf.float32) for name in ("mean", "sd"))
        self._noise = Untracked(noise_of(model, options.network.drops))
        features = tf.TensorSpec([None, run.codec["width"]], tf.float32)
        edges, integer = tf.TensorSpec([None, 2], tf.int32), tf.TensorSpec([], tf.int32)
        self.predict = in_graph(features, edges)(self._predict)
        self.sample = in_graph(features, edges, integer, integer)(self._sample)

    @property
    def names(self):
        """Names of the endpoints; the first is the default."""
        return ("predict",) if self._noise.value is None else ("predict", "sample")

    def _inputs(self, features, edges):
        if self._scaling == "rows":
            features = tf.math.divide_no_nan(features, tf.reduce_sum(tf.abs(features), axis=1, keepdims=True))
        elif self._scaling == "columns":
            features = (features - self._mean) / self._sd
        inside = (edges >= 0) & (edges < tf.shape(features)[0])
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(inside), ["edges: expected nodes below N"])]):
            return {"features": features, "edges": tf.identity(edges)}

    def _predict(self, features, edges):
        """Return the class probabilities (N, C) of the nodes, and the most probable classes (N,)."""
        return self._classified(self._probabilities(self._inputs(features, edges)))

    def _sample(self, features, edges, num_samples, seed):
        """Return the statistics of S samples, and "draws", the samples (S, N, C). The statistics are the mean
        probabilities (N, C), the most probable classes (N,), and the entropy and mutual information (N,) in nats."""
        inputs = self._inputs(features, edges)
        draws = self._noise.value.draws(self._probabilities, inputs, num_samples, seed)
        statistics = predictive_statistics(draws)
        return self._classified(statistics.pop("mean")) | statistics | {"draws": draws}

    def _probabilities(self, inputs):
        return tf.nn.softmax(tf.cast(self._model.value(inputs, training=False), tf.float32))

    def _classified(self, probabilities):
        return {"probabilities": probabilities, "classes": tf.gather(self.classes, tf.argmax(probabilities, axis=1))}


def predicted(run, part):
    """Return the class probabilities (M, C) of the nodes in a split, at the mean attention weights."""
    logits = run.models.prediction(part.graph.inputs, training=False)
    return tf.nn.softmax(tf.gather(tf.cast(logits, "float32"), part.nodes)).numpy()


def generate(run, options):
    part = data.read_other(run.options, options, labelled=False) or data.read(run.options)["train"]
    # Without `encode`, class numbers and feature scales could differ from training.
    graph = data.encode(run.options, run.codec, part).graph
    numbers = {graph.name(node): node for node in range(len(graph.labels))}
    lines, origin = read_input(options, is_text=False), options.input or "standard input"
    for number, line in enumerate(lines, start=1):
        if has_word(line) and line.strip() not in numbers:
            raise InputError(f"{origin}:{number}: expected the name of a node. Received: {line.strip()}")
    nodes = np.array([numbers[line.strip()] for line in lines if has_word(line)], np.int32)

    def predictions():
        for probabilities in predicted(run, data.Part(graph, nodes)):
            best = np.argsort(-probabilities)[:NUM_CLASSES]
            yield "\t".join(f"{graph.classes[label]} {probabilities[label]:.4f}" for label in best)

    yield from aligned(lines, predictions())


def endpoints(run, options=None):
    classifier = Classifier(run)
    return classifier, classifier.names
