"""The variational encoder-decoder as a program: question generation and dialogue."""

import numpy as np
import tensorflow as tf

import keras_vattn
from applications.common.application import Application
from applications.text.pairs import EncodedPairs, evenly, read_inputs, read_other, write_samples
from applications.ved import data, model, tables
from applications.ved.evaluation import decode_all, evaluate, seed_of_batch
from applications.ved.generation import Generator
from applications.ved.options import MODELS, PROGRAM


class Ved(Application):
    """Variational encoder-decoders of Bahuleyan et al. 2018."""

    program = PROGRAM
    columns = tables.COLUMNS
    curves = {
        "val_bleu_4": "BLEU-4, draws",
        "val_map_bleu_4": "BLEU-4, MAP",
        "val_entropy": "entropy (nats)",
        "val_dist_1": "Dist-1",
    }
    layouts = {"table_2": tables.table_2, "table_4": tables.table_4}

    def read(self, options):
        return data.load(options)

    def load_codec(self, options, folder):
        return data.Codec.load(folder, options)

    def encode(self, options, codec, part, training=False):
        return EncodedPairs.encode(codec, part, options.text.max_source_length, options.text.max_target_length)

    def build(self, options, codec):
        return model.build(options, codec.source.vocabulary_size, codec.target.vocabulary_size)

    def read_other(self, options, evaluation):
        return read_other(options.text, evaluation)

    def evaluate(self, run, part, evaluation=None):
        if evaluation is None:
            return evaluate(run, part, run.options.text.max_test_sources)
        temperatures = {"latent": evaluation.latent_temperatures, "word": evaluation.word_temperatures}
        return evaluate(run, part, evaluation.max_sources, temperatures)

    def files(self, outputs):
        return {"generated": outputs["greedy"]}

    def heading(self, record):
        report = record["report"]
        return f"{report['num_sources']} {record['split']} sources; {report['map']['bleu_signature']}"

    def example_of(self, part):
        return part.pairs.sources[0]

    def report(self, run, part, record, outputs):
        if MODELS[run.options.model].attention is not None:
            self._draw_alignment(run, outputs)
        samples = []
        for index, source in enumerate(outputs["sources"]):
            row = [("source", source), *(("reference", text) for text in outputs["references"][index])]
            draws = outputs["draws"][index][:3] if outputs["draws"] else ()
            samples.append([*row, ("MAP", outputs["greedy"][index]), *(("draw", text) for text in draws)])
        lines = write_samples(run.folder.file("samples.txt"), samples)
        if not outputs["draws"]:
            return lines
        sampling, count = record["report"]["sampling"], run.options.reports.num_draws
        sentence = f"of {count} draws a source {sampling['distinct_draws']:.2f} are different, "
        sentence += f"{sampling['distinct_references_among_draws']:.2f} of them different references"
        sentence += "" if sampling["self_bleu"] is None else f"; self-BLEU {sampling['self_bleu']:.1f}"
        return [sentence, "", *lines]

    def _draw_alignment(self, run, outputs):
        """Draw alignment.png: where the attention looks while it writes."""
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

        def decode(batch, number):
            if options.num_samples:
                return generator.draw(batch, options.num_samples, seed_of_batch(options.seed, number), 1.0)
            return generator.greedy(batch)["ids"]

        for sentence in decode_all(decode, run.codec.target, ids, "generating"):
            yield sentence if isinstance(sentence, str) else "\t".join(sentence)

    def endpoints(self, run, options=None):
        return Generator(run), ("generate", "sample", "score")

    def compared(self, comparison):
        return tables.quality_diversity(comparison)


APPLICATION = Ved()
