"""Train a translation model."""

import keras
import numpy as np

import keras_vattn
from applications.common.bounds import perplexity
from applications.common.callbacks import after_warm_start, posterior_callbacks
from applications.common.training import TrainingRun
from applications.nmt.data import Codec
from applications.nmt.decode import Translator, translate
from applications.nmt.model import MODELS
from applications.nmt.options import PROGRAM
from applications.nmt.report import normalized, quality
from applications.text.text import PAD


def train(options):
    """Train a model, report on held-out data, and write samples, pictures and the SavedModel."""
    run = TrainingRun(PROGRAM, options)
    train, valid = run.read(Codec.fit)
    model = run.build()
    run.schedule(train.num_batches(options.fit.batch_size))
    callbacks = posterior_callbacks(run, run.models.decoder.attention) if MODELS[options.model].needs_posterior else []
    run.open()
    with run.scope():
        loss = keras_vattn.NegativeBound(ignore_class=PAD)
        model.compile(run.optimizer(), loss=loss, jit_compile=options.fit.jit_compile)
    callbacks, score = [TranslateValidation(run), *callbacks], after_warm_start("val_loss")
    run.fit(lambda epoch: train.training_batches(options, epoch), valid.training_batches(options), callbacks, score)
    run.finish()


class TranslateValidation(keras.callbacks.Callback):
    """Logs the validation perplexity, and BLEU of greedy translations of the first validation sentences."""

    def __init__(self, run):
        super().__init__()
        self.run = run
        part = run.data["valid"]
        self.tokens_per_pair = np.mean([len(target) + 1 for target in part.targets])
        count = run.options.reports.num_decoded
        self.sources = part.sources[:count]
        self.references = normalized(run.codec, part.pairs.targets[:count])
        self.translator = Translator(run, MODELS[run.options.model].inference_without_draws, num_beams=1)

    def on_epoch_end(self, epoch, logs=None):
        logs["val_perplexity"] = perplexity(logs["val_loss"] / self.tokens_per_pair)
        if self.run.options.reports.decodes_after(epoch):
            hypotheses = translate(self.translator, self.run.codec, self.sources, title=None)
            logs["val_bleu"] = quality(hypotheses, self.references, self.run.options.text.lowercase)["bleu"]
