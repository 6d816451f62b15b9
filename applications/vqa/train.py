"""Train a model that answers questions about images."""

import keras

import keras_vattn
from applications.common.callbacks import after_warm_start, posterior_callbacks
from applications.common.training import TrainingRun
from applications.text.embeddings import load_embeddings
from applications.vqa.data import codec_of
from applications.vqa.options import PROGRAM, WITH_POSTERIOR
from applications.vqa.report import predicted


def train(options):
    """Train a model, report on held-out data, and write samples, pictures and the SavedModel."""
    run = TrainingRun(PROGRAM, options)
    train, valid = run.read(codec_of)
    model = run.build()
    run.schedule(train.num_batches(options.fit.batch_size))
    callbacks = posterior_callbacks(run, model.get_layer("latent")) if options.model in WITH_POSTERIOR else []
    if run.is_new and options.questions.embeddings is not None:
        vocabulary = run.codec.vocabulary
        matrix, num_found = load_embeddings(options.questions.embeddings, vocabulary, options.network.word_width)
        print(f"embeddings: {num_found} of {len(vocabulary)} words found", flush=True)
        run.models.embedding.set_weights([matrix])
    run.open()
    with run.scope():
        model.compile(run.optimizer(), loss=keras_vattn.NegativeBound(), jit_compile=options.fit.jit_compile)

    def validate(epoch, logs):
        report, _ = predicted(run, valid, title=None)
        logs |= {"val_nll": report["nll"], "val_accuracy": report["accuracy"]["all"]}

    # val_loss cannot select the weights: it contains a KL of thousands of nats, whose rounding errors hide the NLL.
    callbacks, score = [keras.callbacks.LambdaCallback(on_epoch_end=validate), *callbacks], after_warm_start("val_nll")
    run.fit(lambda epoch: train.batches(options, epoch), valid.batches(options), callbacks, score)
    run.finish()
