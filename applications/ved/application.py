"""The variational encoder-decoder as a program: question generation and dialogue."""

import numpy as np
import tensorflow as tf

import keras_vattn
from applications.common.application import Application
from applications.common.tables import Column, table, titled
from applications.text.pairs import EncodedPairs, evenly, read_inputs, read_pairs, write_samples
from applications.ved import data, model
from applications.ved.evaluation import (
    decode_all,
    evaluate,
    quality_diversity,
    seed_of_batch,
)
from applications.ved.generation import Generator
from applications.ved.options import MODELS, PROGRAM
from applications.ved.quality_diversity import quality_diversity as plot_quality_diversity

FIGURES = {
    **{f"bleu_{order}": f"BLEU-{order}" for order in range(1, 5)},
    "entropy": "entropy (nats)",
    "dist_1": "Dist-1",
    "dist_2": "Dist-2",
}


def _digits(name):
    return 2 if name.startswith("bleu") else 3


def paper_table(columns):
    """Return the layout of a table of the paper: a line for each model and inference."""

    def layout(comparison):
        lines = []
        for name, records in comparison.records.items():
            for inference in ("map", "sampling"):
                figures = [record["report"].get(inference) for record in records]
                if None not in figures:
                    cells = [
                        Column("", "", _digits(column)).cell([figure.get(column) for figure in figures])
                        for column in columns
                    ]
                    lines.append((name, inference, *cells))
        heads = ("model", "inference", *(FIGURES[column] for column in columns))
        return [titled("Table of Bahuleyan et al. 2018", table(heads, lines))]

    return layout


class Ved(Application):
    """Variational encoder-decoders of Bahuleyan et al. 2018."""

    program = PROGRAM
    columns = (
        Column("BLEU-4, MAP", "report.map.bleu_4", 2),
        *(
            Column(f"{title.removesuffix(' (nats)')}, draws", f"report.sampling.{name}", _digits(name))
            for name, title in FIGURES.items()
        ),
        Column("PPL (plug-in)", "report.likelihood.perplexity", logarithm=True),
        Column("PPL (ELBO)", "report.likelihood.elbo_perplexity", logarithm=True),
        Column("KL of z (nats)", "report.likelihood.kl.latent_kl"),
        Column("KL of attention (nats)", "report.likelihood.kl.attention_kl"),
        Column("active units of z", "report.likelihood.active_units", 0),
    )
    curves = {
        "val_bleu_4": "BLEU-4, draws",
        "val_map_bleu_4": "BLEU-4, MAP",
        "val_entropy": "entropy (nats)",
        "val_dist_1": "Dist-1",
    }
    layouts = {
        "table_2": paper_table(tuple(FIGURES)),
        "table_4": paper_table(("bleu_2", "entropy", "dist_1", "dist_2")),
    }

    def read(self, options):
        return data.load(options)

    def load_codec(self, options, folder):
        return data.Codec.load(folder, options)

    def encode(self, options, codec, part, training=False):
        return EncodedPairs.encode(codec, part, options.text.max_source_length, options.text.max_target_length)

    def build(self, options, codec):
        return model.build(options, codec.source.vocabulary_size, codec.target.vocabulary_size)

    def read_other(self, options, evaluation):
        files = evaluation.source, evaluation.target, evaluation.table
        return read_pairs(options.text, *files, evaluation.skip_invalid)

    def evaluate(self, run, part, evaluation=None):
        if evaluation is None:
            return evaluate(run, part, run.options.text.max_test_sources)
        report, outputs = {}, None
        if not evaluation.curves_only:
            report, outputs = evaluate(run, part, evaluation.max_sources)
        report["curves"] = quality_diversity(run, part, evaluation)
        return report, outputs

    def files(self, outputs):
        return {} if outputs is None else {"generated": outputs["greedy"]}

    def heading(self, record):
        report = record["report"]
        return f"{report['num_sources']} {record['split']} sources; {report['map']['bleu_signature']}"

    def example_of(self, part):
        return part.pairs.sources[0]

    def report(self, run, part, record, outputs):
        self._draw(run, outputs)
        samples = []
        for index, source in enumerate(outputs["sources"]):
            row = [("source", source), *(("reference", text) for text in outputs["references"][index])]
            row.append(("MAP", outputs["greedy"][index]))
            draws = outputs["draws"][index][:3] if outputs["draws"] else ()
            samples.append([*row, *(("draw", text) for text in draws)])
        lines = write_samples(run.folder.file("samples.txt"), samples)
        if not outputs["draws"]:
            return lines
        sampling, count = record["report"]["sampling"], run.options.reports.num_draws
        found = f"of {count} draws a source {sampling['distinct_draws']:.2f} are different, "
        found += f"{sampling['distinct_references_among_draws']:.2f} of them different references"
        found += "" if sampling["self_bleu"] is None else f"; self-BLEU {sampling['self_bleu']:.1f}"
        return [found, "", *lines]

    def _draw(self, run, outputs):
        """Draw alignment.png: where the attention looks while it writes."""
        if MODELS[run.options.model].attention is None:
            return
        generator, source_encoder = Generator(run), run.codec.source
        weights, source_tokens, target_tokens = [], [], []
        for index in evenly(len(outputs["sources"]), 4):
            source = outputs["sources"][index]
            ids = source_encoder.encode(tf.constant([source]), run.options.text.max_source_length)
            decoded = generator.greedy(ids)
            length = int(decoded["lengths"][0])
            words = source_encoder.tokenizer.token_lists([source])[0][: ids.shape[1]]
            target = [*outputs["greedy"][index].split(), "<end>"]
            weights.append(np.asarray(decoded["weights"][0, :length, : len(words)], "float32"))
            source_tokens.append(words)
            target_tokens.append(target[:length] + [""] * (length - len(target)))
        path = run.folder.file("alignment.png")
        keras_vattn.plots.alignment_heat_map(weights, source_tokens, target_tokens, path=path)

    def generate(self, run, options):
        ids = read_inputs(options, run.codec.source, run.options.text.max_source_length)
        generator = Generator(run)

        @tf.function(reduce_retracing=True, autograph=False)
        def search(batch):
            return generator.beam(batch, options.num_beams, options.length_penalty)["ids"]

        def decode(batch, number):
            if options.num_samples:
                return generator.draw(batch, options.num_samples, seed_of_batch(options.seed, number), 1.0)
            return search(batch) if options.num_beams > 1 else generator.greedy(batch)["ids"]

        for sentence in decode_all(decode, run.codec.target, ids, "generating"):
            yield sentence if isinstance(sentence, str) else "\t".join(sentence)

    def endpoints(self, run, options=None):
        return Generator(run), ("generate", "sample", "score")

    def compared(self, comparison):
        """Trace quality against diversity of every model that draws: means over seeds."""
        options = comparison.options
        if not (options.latent_temperatures or options.word_temperatures):
            return []

        def arguments_of(run):
            if not MODELS[run.options.model].stochastic:
                return None
            arguments = ["--split", "valid", "--max-sources", str(options.curve_sources), "--curves-only"]
            for name in ("latent_temperatures", "word_temperatures"):
                if getattr(options, name):
                    arguments += [f"--{name.replace('_', '-')}", *(f"{value:g}" for value in getattr(options, name))]
            return arguments

        found = comparison.evaluate("quality_diversity", arguments_of)
        points = {}
        for name, reports in found.items():
            curves = [report["report"]["curves"] for report in reports]
            for kind in curves[0]:
                points[f"{name}, {kind}"] = [
                    (
                        *(np.mean([point[key] for point in same]) for key in ("entropy", "bleu_4")),
                        same[0]["temperature"],
                    )
                    for same in zip(*(curve[kind] for curve in curves), strict=True)
                ]
        draw_quality_diversity(points, comparison.folder / "quality_diversity.png")
        lines = [(name, f"{at:g}", f"{x:.3f}", f"{y:.2f}") for name, curve in points.items() for x, y, at in curve]
        heads = ("model, what is scaled", "temperature", "entropy (nats)", "BLEU-4")
        return [titled("Quality against diversity, validation, means over seeds", table(heads, lines))]


def draw_quality_diversity(points, path):
    """Draw curves of (entropy, BLEU-4, temperature)."""
    labelled = {name: [(x, y, f"{at:g}") for x, y, at in curve] for name, curve in points.items()}
    plot_quality_diversity(labelled, quality_label="BLEU-4", diversity_label="entropy (nats)", path=path)


APPLICATION = Ved()
