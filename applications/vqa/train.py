"""Training of a model that answers questions about images."""

import keras

import keras_vattn
from applications.common.callbacks import after_warm_start, posterior_callbacks
from applications.common.training import TrainingRun
from applications.text.embeddings import load_embeddings
from applications.vqa.data import codec_of
from applications.vqa.options import PROGRAM, WITH_POSTERIOR
from applications.vqa.report import predicted


def train(options):
    """Train a model, report on held-out data, write samples, pictures and the SavedModel."""
    run = TrainingRun(PROGRAM, options)
    train, valid = run.read(codec_of)
    model = run.build()
    run.schedule(train.num_batches(options.fit.batch_size))
    callbacks = posterior_callbacks(run, model.get_layer("latent")) if options.model in WITH_POSTERIOR else []
    if run.is_new and options.questions.embeddings is not None:
        set_embeddings(run)
    run.open()
    with run.scope():
        # The model returns a bound of the log-likelihood.
        model.compile(run.optimizer(), loss=keras_vattn.NegativeBound(), jit_compile=options.fit.jit_compile)
    # The KL of drawn weights has constants of thousands of nats, beside which a float32 loses the likelihood.
    callbacks, score = [AnswerValidation(run), *callbacks], after_warm_start("val_nll")
    run.fit(lambda epoch: train.batches(options, epoch), valid.batches(options), callbacks, score)
    run.finish()


def set_embeddings(run):
    """Replace the initial vectors of words by pretrained ones."""
    questions, width, vocabulary = run.options.questions, run.options.network.word_width, run.codec.vocabulary
    matrix, known = load_embeddings(questions.embeddings, vocabulary, width)
    print(f"embeddings: {known} of {len(vocabulary)} words found", flush=True)
    run.models.embedding.set_weights([matrix])


class AnswerValidation(keras.callbacks.Callback):
    """Adds the negative log-likelihood and the VQA accuracy of the exact predictions on validation to the log."""

    def __init__(self, run):
        super().__init__()
        self.run = run

    def on_epoch_end(self, epoch, logs=None):
        report, _ = predicted(self.run, self.run.data["valid"], title=None)
        logs |= {"val_nll": report["nll"], "val_accuracy": report["accuracy"]["all"]}
