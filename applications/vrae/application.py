"""Language models with latent variables as a program."""

import itertools

import tensorflow as tf

import keras_vattn
from applications.common.application import Application
from applications.common.errors import InputError
from applications.common.training import load_run
from applications.text import python_topics
from applications.text.pairs import evenly, write_samples
from applications.text.readers import read_input
from applications.vrae import data, model, tables
from applications.vrae.evaluation import evaluate, interpolated, looks
from applications.vrae.generation import seed_of_batch, writer_of
from applications.vrae.options import MODELS, PROGRAM
from applications.vrae.summaries import summarize

NUM_SAMPLES = 8
# What `generate` writes unless it is told, and how much at once.
NUM_NEW, NUM_BETWEEN, BATCH = 10, 5, 64


class Vrae(Application):
    """Variational recurrent autoencoders with stochastic self-attention."""

    program = PROGRAM
    columns = tables.COLUMNS
    curves = {
        "perplexity": "perplexity without KL, training",
        "val_perplexity": "perplexity without KL, validation",
        "val_mutual_information": "I(x; z_enc), validation",
    }
    layouts = {"paper": tables.paper}

    def read(self, options):
        return data.load(options)

    def load_codec(self, options, folder):
        return data.Codec.load(options, folder)

    def encode(self, options, codec, part, training=False):
        return data.EncodedSentences.of(options, codec, part)

    def build(self, options, codec):
        return model.Models(options, len(codec.vocabulary))

    def read_other(self, options, evaluation):
        if evaluation.text is None:
            return None
        return data.read(evaluation.text, options.text, evaluation.skip_invalid)

    def evaluate(self, run, part, evaluation=None):
        writer = writer_of(run)
        if evaluation is None:
            report = evaluate(run, part, writer)
        else:
            report = evaluate(run, part, writer, evaluation.num_draws, evaluation.max_bound)
        embeds = run.options.text.train_text is None and getattr(evaluation, "text", None) is None
        report["embedded_data"] = python_topics.version() if embeds else None
        return report, samples_of(run, part, writer)

    def files(self, outputs):
        return {"generated": outputs["generated"]}

    def heading(self, record):
        bound = record["report"]["likelihood"]["importance_weighted"]
        found = f"{record['report']['num_sentences']} {record['split']} sentences"
        return f"{found}; IW: {bound['num_draws']} draws, {bound['num_sentences']} sentences"

    def example_of(self, part):
        # New sentences are written without one.
        return ""

    def report(self, run, part, record, outputs):
        if run.models.attends:
            draw_attention(run, part)
        rows = [[("generated", text)] for text in outputs["generated"][:NUM_SAMPLES]]
        rows += [[("sentence", text), ("rebuilt", rebuilt)] for text, rebuilt in outputs["reconstructed"]]
        if outputs["interpolated"]:
            rows.append([("between", text) for text in outputs["interpolated"]])
        return write_samples(run.folder.file("samples.txt"), rows)

    def generate(self, run, options):
        writer = writer_of(run, options.drawn_by(run.options.sampling), options.num_beams or 1)
        if options.mode == "new":
            for number, start in enumerate(range(0, options.num or NUM_NEW, BATCH)):
                count = min(BATCH, (options.num or NUM_NEW) - start)
                found = writer.generate(count, seed_of_batch(options.seed, number))
                yield from (text.decode() for text in found.numpy())
            return
        lines = read_input(options)
        empty = [number for number, line in enumerate(lines, start=1) if not line.strip()]
        if empty:
            raise InputError(f"{options.input or 'standard input'}:{empty[0]}: a line without a word")
        if options.mode == "reconstruct":
            for start in range(0, len(lines), BATCH):
                found = writer.reconstruct(tf.constant(lines[start : start + BATCH]))
                yield from (text.decode() for text in found.numpy())
            return
        if len(lines) < 2:
            raise InputError(f"--mode interpolate goes from a line to the next. Received: {len(lines)}")
        for pair in itertools.pairwise(lines):
            yield "\t".join(interpolated(run, writer, list(pair), options.num or NUM_BETWEEN))

    def summarize(self, options):
        """The command `summarize`."""
        summarize(load_run(self, options.run), options)

    def endpoints(self, run, options=None):
        writer = writer_of(run)
        return writer, writer.names


def samples_of(run, part, writer):
    """Return sentences to read: new ones, some of the part with what their z_enc stands for, and some between two."""
    found = {"generated": [text.decode() for text in writer.generate(64, 0).numpy()]}
    found |= {"reconstructed": [], "interpolated": []}
    if MODELS[run.options.model].latent:
        texts = [part.texts[row] for row in evenly(len(part), NUM_SAMPLES)]
        rebuilt = [text.decode() for text in writer.reconstruct(tf.constant(texts)).numpy()]
        found["reconstructed"] = list(zip(texts, rebuilt, strict=True))
        found["interpolated"] = interpolated(run, writer, texts[:2]) if len(texts) > 1 else []
    return found


def draw_attention(run, part):
    """Draw attention.png: where the decoder looks in the sentence that it writes (Figure 3)."""
    short = [text for text, ids in zip(part.texts, part.ids, strict=True) if len(ids) <= 20] or part.texts
    found = [looks(run, short[row]) for row in evenly(len(short), 2)]
    keras_vattn.plots.alignment_heat_map(
        [weights for _, weights in found],
        [words for words, _ in found],
        [[*words, "<end>"] for words, _ in found],
        path=run.folder.file("attention.png"),
    )


APPLICATION = Vrae()
