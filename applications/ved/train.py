"""Train a variational encoder-decoder."""

import keras

import keras_vattn
from applications.common.training import TrainingRun
from applications.text.embeddings import load_embeddings
from applications.text.perplexity import WordPerplexity
from applications.text.text import PAD
from applications.ved.data import Codec
from applications.ved.decode import Generator, write
from applications.ved.model import MODELS
from applications.ved.options import PROGRAM
from applications.ved.report import decoded_sources, diversity, quality


def train(options):
    """Train a model, report on held-out data, and write samples, pictures and the SavedModel."""
    run = TrainingRun(PROGRAM, options)
    train, valid = run.read(Codec.fit)
    model = run.build()
    run.schedule(train.num_batches(options.fit.batch_size))
    if run.is_new and options.text.embeddings is None:
        print("word vectors start at random; --embeddings FILE loads pretrained ones", flush=True)
    elif run.is_new:
        set_embeddings(run)
    run.open()
    with run.scope():
        loss, perplexity = loss_and_perplexity(MODELS[options.model].attention == "position")
        model.compile(run.optimizer(), loss=loss, metrics=[perplexity], jit_compile=options.fit.jit_compile)
    run.fit(lambda epoch: batches_of(run, train, epoch), batches_of(run, valid), [validation(run)])
    run.finish()


def loss_and_perplexity(has_position):
    """Return a loss and a perplexity. With a latent position they read log-likelihoods, without it logits."""
    perplexity = WordPerplexity if has_position else keras_vattn.Perplexity
    loss = keras_vattn.NegativeBound if has_position else keras_vattn.SequenceCrossentropy
    return loss(ignore_class=PAD), perplexity(name="plug_in_perplexity", ignore_class=PAD)


def batches_of(run, part, first_epoch=None):
    """Return the batches of a split. For models with a latent position, the inputs contain the target."""
    if MODELS[run.options.model].attention == "position":
        return part.training_batches(run.options, first_epoch)
    return part.batches(run.options.fit.batch_size, run.options.run.seed, first_epoch)


def set_embeddings(run):
    """Replace the initial word vectors with pretrained vectors."""
    path, width = run.options.text.embeddings, run.options.network.embedding_width
    layers = {"source": run.models.encoder.get_layer("source_embedding"), "target": run.models.target_embedding}
    for side, layer in layers.items():
        vocabulary = getattr(run.codec, side).vocabulary
        matrix, num_known = load_embeddings(path, vocabulary, width)
        print(f"{side} embeddings: {num_known} of {len(vocabulary)} words found", flush=True)
        layer.embeddings.assign(matrix)


def validation(run):
    """Return a callback that decodes validation inputs every few epochs, and logs metrics.

    The metrics are BLEU-2 and BLEU-4. With z, the callback adds BLEU, entropy (nats) and Dist-1 of sampled sentences,
    as in Figures 4 and 5 of Bahuleyan et al. 2018.
    """
    reports, lowercase = run.options.reports, run.options.text.lowercase
    ids, _, references = decoded_sources(run, run.data["valid"], reports.num_decoded)
    generator = Generator(run)

    def add(epoch, logs):
        if not reports.decodes_after(epoch):
            return
        report = quality(write(generator, ids), references, lowercase)
        logs |= {f"val_map_{name}": report[name] for name in ("bleu_2", "bleu_4")}
        if MODELS[run.options.model].latent:
            report = diversity(write(generator, ids, reports.num_draws, 1), references, lowercase)
            logs |= {f"val_{name}": report[name] for name in ("bleu_2", "bleu_4", "entropy", "dist_1")}

    return keras.callbacks.LambdaCallback(on_epoch_end=add)
