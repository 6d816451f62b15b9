"""Neural machine translation with latent alignments as a program."""

import keras_vattn
from applications.common.application import Application
from applications.common.runs import write_json
from applications.common.tables import figures_of, interval_text
from applications.nmt import data, model, tables
from applications.nmt.encoding import Codec, EncodedText
from applications.nmt.evaluation import align, bound_of, evaluate, k_curve_report, translate
from applications.nmt.generation import Translator
from applications.nmt.options import MODELS, PROGRAM
from applications.text.pairs import evenly, read_inputs, write_samples

NUM_PICTURES = 3
# Tokens and alignments of the pairs that are drawn.
PICTURED = "alignments.json"
# Alignments in the order in which they are drawn; a comparison leaves out the last one.
KINDS = ("prior", "mean", "posterior", "exact")


class Nmt(Application):
    """Translation models of Deng et al. 2018 and Fan et al. 2020."""

    program = PROGRAM
    columns = tables.COLUMNS
    curves = {"val_perplexity": "perplexity of the bound, validation", "val_bleu": "BLEU, validation, greedy"}
    layouts = {"deng": tables.deng, "fan": tables.fan}

    def read(self, options):
        return data.load(options)

    def load_codec(self, options, folder):
        return Codec.load(folder, options)

    def encode(self, options, codec, part, training=False):
        return EncodedText.of(options, codec, part, training)

    def build(self, options, codec):
        return model.build(options, codec.source.vocabulary_size, codec.target.vocabulary_size)

    def read_other(self, options, evaluation):
        return data.read_evaluated(options, evaluation)

    def evaluate(self, run, part, evaluation=None):
        if evaluation is None:
            return evaluate(run, part)
        names = evaluation.inference or (MODELS[run.options.model].inference,)
        reports, outputs, bound = {}, {}, bound_of(run, part)
        for name in names:
            reports[name], outputs[name] = evaluate(run, part, name, bound)
            if len(names) > 1:
                print(f"{name}\n{figures_of(self.columns, {'report': reports[name]})}\n", flush=True)
        report = reports[names[0]] | {"inferences": reports}
        if evaluation.k_curve:
            report["k_curve"] = k_curve_report(Translator(run), run, part, evaluation.k_curve)
        others = {f"hypotheses_{name.replace(':', '_')}": outputs[name]["hypotheses"] for name in names[1:]}
        return report, outputs[names[0]] | {"others": others}

    def files(self, outputs):
        return {name: outputs[name] for name in ("hypotheses", "references")} | outputs.get("others", {})

    def heading(self, record):
        translation = record["report"]["translation"]
        return (
            f"{record['report']['num_sentences']} {record['split']} sentences, inference "
            f"{record['report']['inference']}; {translation['bleu_signature']}; {translation['chrf_signature']}"
        )

    def example_of(self, part):
        return part.pairs.sources[0]

    def report(self, run, part, record, outputs):
        drawn = pictured(run, part)
        write_json(run.folder.file(PICTURED), {"model": run.options.model, "pairs": drawn})
        draw_alignments({run.options.model: drawn}, KINDS, run.folder.file("alignments.png"))
        columns = [outputs[name] for name in ("sources", "references", "hypotheses")]
        labels = ("source", "reference", "translation")
        rows = [list(zip(labels, row, strict=True)) for row in zip(*columns, strict=True)]
        samples = write_samples(run.folder.file("samples.txt"), rows)
        return [*alignment_lines(record["report"]["alignment"]), "", *samples]

    def generate(self, run, options):
        ids = read_inputs(options, run.codec.source, run.options.text.max_length)
        translator = Translator(run, options.inference, options.num_beams)
        yield from translate(translator, run.codec, ids)

    def endpoints(self, run, options=None):
        inference = (options and options.inference) or MODELS[run.options.model].inference_without_draws
        return Translator(run, inference), ("generate", "n_best", "score")

    def compared(self, comparison):
        options = comparison.options
        known = {run.name: comparison.read(run, PICTURED)["pairs"] for run in comparison.of_first_seed}
        draw_alignments(known, KINDS[:3], comparison.folder / "alignments.png")
        parts = [tables.over_sentences(comparison)] if options.baseline in known and len(known) > 1 else []
        return parts + (tables.crossing(comparison) if options.inference else [])


def alignment_lines(report):
    """Return a line on each alignment of a report: its entropy and, with gold links, its quality."""
    lines = []
    for name in KINDS:
        if f"{name}_entropy" in report:
            line = f"alignment, {name}: entropy {report[f'{name}_entropy']:.3f} nats"
            for measure in ("f1", "aer") if name in report else ():
                interval = (report[name][measure], *report[name][f"{measure}_interval"])
                line += f", {measure.upper()} {interval_text([100 * x for x in interval], 1)}"
            lines.append(line)
    return lines


def pictured(run, part):
    """Return some pairs of a part with their alignments (Figures 3 and 4: prior, posteriors), to be drawn."""
    chosen = evenly(len(part.pairs), NUM_PICTURES)
    sources, targets = ([side[row] for row in chosen] for side in (part.sources, part.targets))
    weights = align(Translator(run), sources, targets)
    return [
        {
            "source": run.codec.source.pieces(source) or [""],
            "target": [*run.codec.target.pieces(target), "<end>"],
            "weights": {name: matrices[index].tolist() for name, matrices in weights.items()},
        }
        for index, (source, target) in enumerate(zip(sources, targets, strict=True))
    ]


def draw_alignments(known, kinds, path):
    """Draw alignments of the same pairs side by side, and return the figure.

    Args:
        known: Dictionary from the name of a model to its result of `pictured`.
        kinds: Names of the alignments to draw, where a model has them.
        path: The PNG.
    """
    first = next(iter(known.values()))
    panels = [
        (f"{name}: {kind}", pairs[index], kind)
        for index in range(len(first))
        for name, pairs in known.items()
        for kind in kinds
        if kind in pairs[index]["weights"]
    ]
    return keras_vattn.plots.alignment_heat_map(
        [pair["weights"][kind] for _, pair, kind in panels],
        [pair["source"] for _, pair, _ in panels],
        [pair["target"] for _, pair, _ in panels],
        [title for title, _, _ in panels],
        panels_per_row=len(panels) // len(first),
        path=path,
    )


APPLICATION = Nmt()
