"""Training of a classifier of the nodes of a graph."""

import keras
import numpy as np

from applications.common.training import TrainingRun
from applications.graphs.options import PROGRAM


def train(options):
    """Train a model, report on held-out data, write samples, pictures and the SavedModel."""
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
    best, better = (lambda row: row["val_best"]), (lambda row: row["val_better"])
    batches_from = lambda epoch: train.batches(options, epoch)  # noqa: E731
    run.fit(batches_from, valid.batches(options), [Criterion(run)], score=best, patience_score=better)
    run.finish()


def codec_of(options, part):
    """Return what a model knows of the graph that it is trained on: the classes, and the features with their scale."""
    graph, scaling = part.graph, None
    if options.graph.scaling == "columns":
        mean, sd = graph.features.mean(axis=0, dtype=np.float64), graph.features.std(axis=0, dtype=np.float64)
        scaling = {"mean": mean.tolist(), "sd": np.where(sd > 0.0, sd, 1.0).tolist()}
    width = graph.features.shape[1]
    return {"classes": graph.classes, "width": width, "columns": graph.columns, "scaling": scaling}


class Criterion(keras.callbacks.Callback):
    """Adds to the log the numbers of the best weights and of early stopping, which fall where an epoch is better.

    It reads them off the history, which a resumed run has.
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
            # A step of the accuracy is larger than this share of any NLL.
            self.best = self.better = -accuracy + 1e-6 * min(nll, 10.0)
        else:
            self.best = self.better = nll
        self.accuracy, self.nll = max(accuracy, self.accuracy), min(nll, self.nll)
        logs |= {"val_best": float(self.best), "val_better": float(self.better)}
