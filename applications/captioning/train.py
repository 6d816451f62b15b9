"""Train an image captioning model."""

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
    """Train a model, report on held-out data, and write samples, pictures and the SavedModel."""
    run = TrainingRun(PROGRAM, options)
    train, valid = run.read(codec_of)
    model = run.build()
    run.schedule(train.num_batches(options.fit.batch_size))
    run.open()
    with run.scope():
        model.compile(
            run.optimizer(),
            loss=keras_vattn.NegativeBound(ignore_class=PAD),
            metrics=[WordPerplexity()],
            jit_compile=options.fit.jit_compile,
        )
    captioner, references = Captioner(run, num_beams=1), valid.captions.captions

    def validate(epoch, logs):
        if options.reports.decodes_after(epoch):
            hypotheses = caption(captioner, valid, options.reports.num_decoded, title=None)
            logs["val_cider"] = caption_metrics(hypotheses, references[: len(hypotheses)], java=False)["cider"]

    # The loss cannot select the best epoch: with a tiny prior_beta, even the minimum of the KL is large.
    callbacks, score = [keras.callbacks.LambdaCallback(on_epoch_end=validate)], lambda row: row["val_perplexity"]
    run.fit(lambda epoch: train.batches(options, epoch), valid.batches(options), callbacks, score)
    run.finish()
