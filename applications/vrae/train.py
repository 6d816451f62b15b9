"""Training of a language model with latent variables."""

import keras
import numpy as np

import keras_vattn
from applications.common.training import TrainingRun
from applications.text.batching import padded
from applications.text.pairs import evenly
from applications.text.perplexity import WordPerplexity
from applications.text.text import PAD
from applications.vrae.application import APPLICATION
from applications.vrae.data import Codec
from applications.vrae.generation import writer_of
from applications.vrae.options import MODELS
from keras_vattn import metrics


def train(options):
    """Train a model, report on held-out data, write samples, pictures and the SavedModel."""
    run = TrainingRun(APPLICATION, options)
    train, valid = run.read(Codec.fit)
    model = run.build()
    run.schedule(train.num_batches(options.fit.batch_size))
    run.open()
    with run.scope():
        # The model returns a bound of the log-likelihood.
        model.compile(
            run.optimizer(),
            loss=keras_vattn.NegativeBound(ignore_class=PAD),
            metrics=[WordPerplexity()],
            jit_compile=options.fit.jit_compile,
        )
    callbacks = [CodeValidation(run)] if MODELS[options.model].latent else []
    for stage in run.stages(callbacks):
        batches = train.batches(options, stage.epoch).skip(stage.step)
        model.fit(batches, validation_data=valid.batches(options), **stage.fit)
    run.finish()


class CodeValidation(keras.callbacks.Callback):
    """Adds what z_enc says of validation sentences to the log: active units, and the mutual information (nats)."""

    def __init__(self, run):
        super().__init__()
        self.run = run
        part, count = run.data["valid"], run.options.reports.num_decoded
        self.ids = [part.ids[row] for row in evenly(len(part), count)]
        self.writer = writer_of(run)

    def on_epoch_end(self, epoch, logs=None):
        if not self.run.options.reports.decodes_after(epoch):
            return
        found = self.writer.posterior(padded(self.ids))
        means, log_scales = (np.asarray(found[name]) for name in ("mean", "log_scale"))
        logs["val_active_units"] = metrics.active_units(means)
        logs["val_mutual_information"] = metrics.latent_mutual_information(means, log_scales)
