"""Train a model that classifies the nodes of a graph."""

import keras
import numpy as np

from applications.common.training import TrainingRun
from applications.graphs.options import PROGRAM


def train(options):
    """Train a model, report on held-out data, and write samples, pictures and the SavedModel."""
    run = TrainingRun(PROGRAM, options)
    train, valid = run.read(codec_of)
    model = run.build()
    run.schedule(train.num_batches(options))
    run.open()
    with run.scope():
        model.compile(
            run.optimizer(),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=[
                keras.metrics.SparseCategoricalAccuracy("accuracy"),
                keras.metrics.SparseCategoricalCrossentropy("nll", from_logits=True),
            ],
            jit_compile=options.fit.jit_compile,
        )

    def validate(epoch, logs):
        logs |= criterion_of(options.reports.criterion, run.checkpoint.rows, logs["val_accuracy"], logs["val_nll"])

    callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=validate)]
    best, better = (lambda row: row["val_best"]), (lambda row: row["val_better"])
    run.fit(lambda epoch: train.batches(options, epoch), valid.batches(options), callbacks, best, better)
    run.finish()


def codec_of(options, part):
    """Return the codec of the training graph: its classes, and the number, names and scaling of its features."""
    graph, scaling = part.graph, None
    if options.graph.scaling == "columns":
        mean, sd = graph.features.mean(axis=0, dtype=np.float64), graph.features.std(axis=0, dtype=np.float64)
        scaling = {"mean": mean.tolist(), "sd": np.where(sd > 0.0, sd, 1.0).tolist()}
    width = graph.features.shape[1]
    return {"classes": graph.classes, "width": width, "columns": graph.columns, "scaling": scaling}


def criterion_of(criterion, rows, accuracy, nll):
    """Return a dictionary with "val_best" and "val_better". Smaller values are better. "val_best" selects the epoch
    whose weights are stored. "val_better" controls early stopping. `rows` contains the history of the previous
    epochs."""
    if criterion == "published":
        is_most_accurate = accuracy >= max((row["val_accuracy"] for row in rows), default=0.0)
        has_least_nll = nll <= min((row["val_nll"] for row in rows), default=np.inf)
        best = min((row["val_best"] for row in rows), default=0.0) - (is_most_accurate and has_least_nll)
        better = min((row["val_better"] for row in rows), default=0.0) - (is_most_accurate or has_least_nll)
    elif criterion == "accuracy":
        # The NLL term is smaller than any difference between two accuracies, so it only breaks ties.
        best = better = -accuracy + 1e-6 * min(nll, 10.0)
    else:
        best = better = nll
    return {"val_best": float(best), "val_better": float(better)}
