"""Training of a language model with latent variables."""

import keras
import numpy as np

import keras_vattn
from applications.common.shown import evenly
from applications.common.training import TrainingRun
from applications.text.batching import padded
from applications.text.perplexity import WordPerplexity
from applications.text.text import PAD
from applications.vrae.data import Codec
from applications.vrae.options import MODELS, PROGRAM
from applications.vrae.serve import writer_of
from keras_vattn import metrics


def train(options):
    """Train a model, report on held-out data, write samples, pictures and the SavedModel."""
    run = TrainingRun(PROGRAM, options)
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
    """Adds active units and mutual information (nats) of z_enc on validation sentences to the log."""

    def __init__(self, run):
        super().__init__()
        self.run = run
        part, count = run.data["valid"], run.options.reports.num_decoded
        self.ids = [part.ids[row] for row in evenly(len(part), count)]
        self.writer = writer_of(run)

    def on_epoch_end(self, epoch, logs=None):
        if not self.run.options.reports.decodes_after(epoch):
            return
        code = self.writer.posterior(padded(self.ids))
        means, log_scales = np.asarray(code["mean"]), np.asarray(code["log_scale"])
        logs["val_active_units"] = metrics.active_units(means)
        logs["val_mutual_information"] = metrics.latent_mutual_information(means, log_scales)
