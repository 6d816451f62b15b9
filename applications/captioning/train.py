"""Training of a captioner."""

import keras

import keras_vattn
from applications.captioning.data import codec_of
from applications.captioning.decode import Captioner
from applications.captioning.metrics import caption_metrics
from applications.captioning.options import PROGRAM
from applications.captioning.report import caption
from applications.common.training import TrainingRun
from applications.text.perplexity import WordPerplexity
from applications.text.text import PAD


def train(options):
    """Train a model, report on held-out data, write samples, pictures and the SavedModel."""
    run = TrainingRun(PROGRAM, options)
    train, valid = run.read(codec_of)
    model = run.build()
    run.schedule(train.num_batches(options.fit.batch_size))
    run.open()
    with run.scope():
        # The model returns the terms of a bound of the log-likelihood.
        model.compile(
            run.optimizer(),
            loss=keras_vattn.NegativeBound(ignore_class=PAD),
            metrics=[WordPerplexity()],
            jit_compile=options.fit.jit_compile,
        )
    # Without the KL, which with a tiny beta is all of the loss.
    callbacks, score = [CaptionValidation(run)], lambda row: row["val_perplexity"]
    run.fit(lambda epoch: train.batches(options, epoch), valid.batches(options), callbacks, score)
    run.finish()


class CaptionValidation(keras.callbacks.Callback):
    """Adds the CIDEr of captions of the first images of validation, decoded greedily, to the log."""

    def __init__(self, run):
        super().__init__()
        self.run = run
        self.part = run.data["valid"]
        self.captioner = Captioner(run, num_beams=1)

    def on_epoch_end(self, epoch, logs=None):
        if not self.run.options.reports.decodes_after(epoch):
            return
        hypotheses = caption(self.captioner, self.part, self.run.options.reports.num_decoded, title=None)
        references = self.part.captions.captions[: len(hypotheses)]
        logs["val_cider"] = caption_metrics(hypotheses, references, java=False)["cider"]
