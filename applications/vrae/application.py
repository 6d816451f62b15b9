"""Language models with latent variables as a program."""

import dataclasses
import itertools

import tensorflow as tf

import keras_vattn
from applications.common.application import Application
from applications.common.errors import InputError
from applications.common.training import load_run
from applications.text.pairs import evenly, write_samples
from applications.text.readers import read_input
from applications.vrae import data, model, tables
from applications.vrae.evaluation import evaluate, interpolated, looks
from applications.vrae.generation import Writer, seed_of_batch
from applications.vrae.options import MODELS, PROGRAM
from applications.vrae.summaries import summarize

NUM_SAMPLES = 8
# The defaults of `generate --num`, and the sentences of a batch.
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
        return model.build(options, len(codec.vocabulary))

    def read_other(self, options, evaluation):
        if evaluation.text is None:
            return None
        return data.read(evaluation.text, dataclasses.replace(options.text, skip_invalid=evaluation.skip_invalid))

    def evaluate(self, run, part, evaluation=None):
        writer = Writer(run)
        own = () if evaluation is None else (evaluation.num_draws, evaluation.max_bound)
        return evaluate(run, part, writer, *own), samples_of(run, part, writer)

    def files(self, outputs):
        return {"generated": outputs["generated"]}

    def heading(self, record):
        report, bound = record["report"], record["report"]["likelihood"]["importance_weighted"]
        draws = f"IW: {bound['num_draws']} draws, {bound['num_sentences']} sentences"
        return f"{report['num_sentences']} {record['split']} sentences; {draws}"

    def example_of(self, part):
        # New sentences need no input.
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
        writer = Writer(run, options.drawn_by(run.options.sampling), options.num_beams or 1)
        if options.mode == "new":
            num = options.num or NUM_NEW
            for number, start in enumerate(range(0, num, BATCH)):
                yield from _strings(writer.generate(min(BATCH, num - start), seed_of_batch(options.seed, number)))
            return
        lines = read_input(options)
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                raise InputError(f"{options.input or 'standard input'}:{number}: a line without a word")
        if options.mode == "reconstruct":
            for start in range(0, len(lines), BATCH):
                yield from _strings(writer.reconstruct(tf.constant(lines[start : start + BATCH])))
            return
        if len(lines) < 2:
            raise InputError(f"--mode interpolate goes from a line to the next. Received: {len(lines)}")
        for pair in itertools.pairwise(lines):
            yield "\t".join(interpolated(run, writer, list(pair), options.num or NUM_BETWEEN))

    def summarize(self, options):
        """The command `summarize`."""
        summarize(load_run(self, options.run), options)

    def endpoints(self, run, options=None):
        writer = Writer(run)
        return writer, writer.names


def _strings(texts):
    return [text.decode() for text in texts.numpy()]


def samples_of(run, part, writer):
    """Return sentences to read: new ones, reconstructions of some of the part, and sentences between two codes."""
    samples = {"generated": _strings(writer.generate(64, 0)), "reconstructed": [], "interpolated": []}
    if MODELS[run.options.model].latent:
        texts = [part.texts[row] for row in evenly(len(part), NUM_SAMPLES)]
        samples["reconstructed"] = list(zip(texts, _strings(writer.reconstruct(tf.constant(texts))), strict=True))
        samples["interpolated"] = interpolated(run, writer, texts[:2]) if len(texts) > 1 else []
    return samples


def draw_attention(run, part):
    """Draw attention.png: where the decoder looks in the sentence that it writes (Figure 3)."""
    short = [text for text, ids in zip(part.texts, part.ids, strict=True) if len(ids) <= 20] or part.texts
    words, weights = zip(*(looks(run, short[row]) for row in evenly(len(short), 2)))
    written = [[*sentence, "<end>"] for sentence in words]
    path = run.folder.file("attention.png")
    keras_vattn.plots.alignment_heat_map(list(weights), list(words), written, path=path)


APPLICATION = Vrae()
