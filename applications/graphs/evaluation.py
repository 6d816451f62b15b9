"""Reports of a trained model: accuracy, calibration, uncertainty of each node, and statistics of the attention.

Shapes: N nodes, M nodes of a part, C classes, S draws.
"""

import numpy as np
import tensorflow as tf

import keras_vattn
from applications.common import uncertainty
from applications.graphs.options import MODELS
from keras_vattn import metrics

# Seed of draws: reports of equal runs are equal.
_SEED = 0


def evaluate(run, part, num_draws=None):
    """Return all figures of a part, and the predictions."""
    labels = part.labels
    num_draws = run.options.reports.num_draws if num_draws is None else num_draws
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
        report["uncertainty"] = {}
        for name, options in kinds(run).items():
            draws = draws_of(run, part, num_draws, **options)
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


def predicted(run, part):
    """Return the probabilities (M, C) at the mean of the attention."""
    logits = run.models.prediction(part.graph.inputs, training=False)
    return tf.nn.softmax(tf.gather(tf.cast(logits, "float32"), part.nodes)).numpy()


def kinds(run):
    """Return the random parts of a prediction with their options of `keras_vattn.posterior_predictive`, all of them
    together last."""
    drops, draws = run.options.network.drops, MODELS[run.options.model].distribution is not None
    options = {"dropout": {"dropout": True, "posterior": False}} if drops else {}
    options |= {"attention": {}} if draws else {}
    return options | ({"both": {"dropout": True}} if drops and draws else {})


def draws_of(run, part, num_draws, **options):
    """Return draws (S, M, C) of the probabilities."""
    graph = tf.data.Dataset.from_tensors(part.graph.inputs)
    draws = keras_vattn.posterior_predictive(
        run.models.prediction, graph, num_draws, seed=_SEED, max_rows=1, **options
    )[:, part.nodes]
    return tf.nn.softmax(tf.cast(draws, "float32")).numpy()


def gradient_norms(run, part):
    """Return the norms of the gradients of a part's log-likelihood and of the KL, in a step on the whole graph."""
    labels, drops = tf.constant(part.labels), run.options.network.drops

    def log_likelihood(logits):
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.gather(logits, part.nodes))

    return uncertainty.gradient_norms(run.models.prediction, part.graph.inputs, log_likelihood, drops)


def attention_statistics(run, graph):
    """Return for each layer the entropies of a node's weights and of its prior, and the standard deviation of a weight
    over draws: means over heads and the nodes that have an edge. `None` for weights that are not drawn."""
    if MODELS[run.options.model].distribution is None:
        return None
    models, edges = run.models, graph.inputs["edges"]
    several = np.isin(np.arange(len(graph.labels)), graph.edges[:, 1])
    seen = {"first": graph.inputs["features"], "second": models.hidden(graph.inputs, training=False)}
    report = {}
    for name, nodes in seen.items():
        statistics = models.prediction.get_layer(name).alignment_statistics(nodes, edges, num_samples=16)
        report[name] = {key: float(x.numpy()[:, several].mean()) for key, x in statistics.items()}
    return report
