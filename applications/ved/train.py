"""Training of a variational encoder-decoder."""

import keras

import keras_vattn
from applications.common.training import TrainingRun
from applications.text.embeddings import load_embeddings
from applications.text.perplexity import WordPerplexity
from applications.text.text import PAD
from applications.ved.data import Codec
from applications.ved.decode import Generator, decode_all
from applications.ved.model import MODELS
from applications.ved.options import PROGRAM
from applications.ved.report import decoded_sources, quality, sample_report


def train(options):
    """Train a model, report on held-out data, write samples, pictures and the SavedModel."""
    run = TrainingRun(PROGRAM, options)
    train, valid = run.read(Codec.fit)
    model = run.build()
    run.schedule(train.num_batches(options.fit.batch_size))
    if run.is_new and options.text.embeddings is None:
        print("word vectors start at random; --embeddings FILE names pretrained ones", flush=True)
    elif run.is_new:
        set_embeddings(run)
    run.open()
    with run.scope():
        loss, perplexity = loss_and_perplexity(MODELS[options.model].attention == "position")
        model.compile(run.optimizer(), loss=loss, metrics=[perplexity], jit_compile=options.fit.jit_compile)
    run.fit(lambda epoch: batches_of(run, train, epoch), batches_of(run, valid), [DecodeValidation(run)])
    run.finish()


def loss_and_perplexity(has_position):
    """Return the loss and the metric of a model's logits, or of a model that returns the log-likelihood of words."""
    perplexity = WordPerplexity if has_position else keras_vattn.Perplexity
    loss = keras_vattn.NegativeBound if has_position else keras_vattn.SequenceCrossentropy
    return loss(ignore_class=PAD), perplexity(name="plug_in_perplexity", ignore_class=PAD)


def batches_of(run, part, first_epoch=None):
    """Return the batches of a part, with the target among the inputs of a model that has a latent position."""
    batches = part.batches(run.options.fit.batch_size, run.options.run.seed, first_epoch)
    if MODELS[run.options.model].attention != "position":
        return batches
    return batches.map(lambda inputs, target: ({**inputs, "target": target}, target))


def set_embeddings(run):
    """Put pretrained vectors of words in the place of the initial ones."""
    text, width, matrices = run.options.text, run.options.network.embedding_width, []
    for side, vocabulary in (("source", run.codec.source.vocabulary), ("target", run.codec.target.vocabulary)):
        matrix, num_known = load_embeddings(text.embeddings, vocabulary, width)
        print(f"{side} embeddings: {num_known} of {len(vocabulary)} words found", flush=True)
        matrices.append(matrix)
    run.models.set_embeddings(*matrices)


class DecodeValidation(keras.callbacks.Callback):
    """Decodes validation inputs every few epochs and adds BLEU-2, BLEU-4, entropy (nats) and Dist-1 to the log (Figures
    4 and 5).

    Entropy and Dist-1 are computed from `num_draws` draws; a deterministic model has neither.
    """

    def __init__(self, run):
        super().__init__()
        self.run = run
        self.ids, _, self.references = decoded_sources(run, run.data["valid"], run.options.reports.num_decoded)
        self.generator = Generator(run)

    def on_epoch_end(self, epoch, logs=None):
        run = self.run
        if not run.options.reports.decodes_after(epoch):
            return
        greedy = decode_all(lambda batch, _: self.generator.greedy(batch)["ids"], run.codec.target, self.ids)
        report = quality(greedy, self.references, run.options.text.lowercase)
        logs |= {"val_map_bleu_2": report["bleu_2"], "val_map_bleu_4": report["bleu_4"]}
        if MODELS[run.options.model].latent:
            report, _ = sample_report(run, self.generator, self.ids, self.references)
            logs |= {f"val_{name}": report[name] for name in ("bleu_2", "bleu_4", "entropy", "dist_1")}
