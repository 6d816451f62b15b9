"""Train a language model with latent variables."""

import keras

import keras_vattn
from applications.common.errors import InputError
from applications.common.shown import evenly
from applications.common.training import TrainingRun
from applications.text.batching import padded
from applications.text.perplexity import WordPerplexity
from applications.text.text import PAD
from applications.vrae.data import Codec
from applications.vrae.decode import Writer
from applications.vrae.model import MODELS
from applications.vrae.options import PROGRAM
from keras_vattn import metrics


def train(options):
    """Train a model, report on held-out data, and write samples, pictures and the SavedModel."""
    run = TrainingRun(PROGRAM, options)
    train, valid = run.read(Codec.fit)
    model = run.build()
    run.schedule(train.num_batches(options.fit.batch_size))
    if options.variational.lagging_steps >= run.num_steps:
        raise InputError(f"--lagging-steps: must be fewer than the {run.num_steps} steps of the run.")
    run.open()
    with run.scope():
        model.compile(
            run.optimizer(),
            loss=keras_vattn.NegativeBound(ignore_class=PAD),
            metrics=[WordPerplexity()],
            jit_compile=options.fit.jit_compile,
        )
    callbacks = [validation(run)] if MODELS[options.model].latent else []
    if options.variational.lagging_steps and MODELS[options.model].latent:
        callbacks.append(LaggingInference(run.models, options.variational))
    run.fit(lambda epoch: train.training_batches(options, epoch), valid.training_batches(options), callbacks)
    run.finish()


class LaggingInference(keras.callbacks.Callback):
    """In the first `lagging_steps` steps, trains q for `q_steps` steps per step of p (He et al. 2019).

    Args:
        models: `Models`, with the inference network q and the generative model p.
        variational: `VariationalOptions`.
    """

    def __init__(self, models, variational):
        super().__init__()
        self.num_steps, self.period = variational.lagging_steps, variational.q_steps + 1
        inference = {id(weight) for weight in models.inference_weights}
        self.in_inference = [(weight, id(weight) in inference) for weight in models.training.trainable_weights]
        # Each phase needs a separate train function: tracing fixes which weights a function trains.
        self.functions = {}

    def on_train_batch_begin(self, batch, logs=None):
        step = int(self.model.optimizer.iterations.numpy())
        trains_q = None if step >= self.num_steps else (step + 1) % self.period > 0
        for weight, in_inference in self.in_inference:
            weight.trainable = trains_q in (None, in_inference)
        if trains_q not in self.functions:
            self.model.make_train_function(force=True)
            self.functions[trains_q] = self.model.train_function
        self.model.train_function = self.functions[trains_q]

    def on_train_batch_end(self, batch, logs=None):
        for weight, _ in self.in_inference:
            weight.trainable = True


def validation(run):
    """Return a callback that logs active units and mutual information (nats) of z_enc in validation."""
    part, reports, writer = run.data["valid"], run.options.reports, Writer(run)
    ids = padded(part.sources.take(evenly(len(part), reports.num_decoded)))

    def add(epoch, logs):
        if reports.decodes_after(epoch):
            code = writer.posterior(ids)
            mean, log_scale = code["mean"].numpy(), code["log_scale"].numpy()
            logs["val_active_units"] = metrics.active_units(mean)
            logs["val_mutual_information"] = metrics.latent_mutual_information(mean, log_scale)

    return keras.callbacks.LambdaCallback(on_epoch_end=add)
