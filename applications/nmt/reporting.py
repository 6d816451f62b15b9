"""What a run leaves to be read: the table, the samples and the pictures."""

import numpy as np

import keras_vattn
from applications.common.runs import write_json, write_text_atomically
from applications.nmt.evaluation import align
from applications.nmt.generation import Translator

CURVES = ("loss", "val_loss")
CURVE_LABELS = {"loss": "loss, training (nats)", "val_loss": "loss, validation (nats)"}
NUM_PICTURES = 3
# A sentence a line, of the split that is reported on.
HYPOTHESES, REFERENCES = "hypotheses.txt", "references.txt"
# Tokens and alignments of the pairs that are drawn.
PICTURED = "alignments.json"
# What a comparison draws of a row.
ROW_PANELS = ("prior", "mean", "posterior")


def write_report(folder, record, sentences):
    """Write report.txt: the figures, and samples beside their references."""
    report = record["report"]
    likelihood, translation, alignment = (report[name] for name in ("likelihood", "translation", "alignment"))
    lines = [
        f"{record['row']}, seed {record['seed']} (one seed, no claim), {report['num_sentences']} {record['split']} "
        f"sentences, inference {report['inference']}, best of {record['epochs']} epochs: {record['best_epoch']}",
        "",
        f"perplexity ({likelihood['kind']}): {likelihood['perplexity']:.3f} of {likelihood['num_tokens']} tokens, ends "
        "counted",
    ]
    if "elbo_nats" in likelihood:
        lines.append(
            f"perplexity (ELBO): {likelihood['elbo_perplexity']:.3f}; ELBO {likelihood['elbo_nats']:.3f} nats a "
            f"sentence, KL {likelihood['kl_nats']:.3f}"
        )
    lines += [
        f"BLEU: {translation['bleu']:.2f} ({translation['bleu_signature']})",
        f"chrF: {translation['chrf']:.2f} ({translation['chrf_signature']})",
        f"exact match: {100 * translation['exact_match']:.1f}%",
    ]
    for name in ("prior", "mean", "posterior", "exact"):
        if f"{name}_entropy" in alignment:
            line = f"alignment, {name}: entropy {alignment[f'{name}_entropy']:.3f} nats"
            if name in alignment:
                scores = alignment[name]
                for title, measure in (("F1", "f1"), ("AER", "aer")):
                    value, low, high = (100 * x for x in (scores[measure], *scores[f"{measure}_interval"]))
                    line += f", {title} {value:.1f} [{low:.1f}, {high:.1f}]"
            lines.append(line)
    parameters = record["parameters"]
    lines += [
        f"parameters: {parameters['generative']} generative, {parameters['inference']} inference",
        f"trained {record['epochs']} epochs, {record['steps']} steps, in {record['train_seconds']:.0f} s",
        "",
        *_samples(sentences, 8),
    ]
    write_text_atomically(folder.file("report.txt"), "\n".join(lines) + "\n")
    write_text_atomically(folder.file("samples.txt"), "\n".join(_samples(sentences, 200)) + "\n")
    for name, column in ((HYPOTHESES, "hypotheses"), (REFERENCES, "references")):
        write_lines(folder.file(name), sentences[column])


def write_lines(path, sentences):
    """Write a sentence a line."""
    write_text_atomically(path, "".join(f"{sentence}\n" for sentence in sentences))


def _samples(sentences, maximum):
    lines = []
    count = len(sentences["sources"])
    for index in np.unique(np.linspace(0, count - 1, min(maximum, count)).astype(int)):
        lines += [
            f"source      {sentences['sources'][index]}",
            f"reference   {sentences['references'][index]}",
            f"translation {sentences['hypotheses'][index]}",
            "",
        ]
    return lines


def write_pictures(folder, options, models, codec, rows, pairs, encoded):
    """Write curves.png, alignments.png (Figures 3 and 4: prior, posteriors side by side), and the numbers in it."""
    history = {name: [row.get(name) for row in rows] for name in ("epoch", *CURVES)}
    keras_vattn.plots.training_curves(
        {options.row: history}, list(CURVES), metric_labels=CURVE_LABELS, path=folder.file("curves.png")
    )
    count = len(pairs)
    chosen = np.unique(np.linspace(0, count - 1, min(NUM_PICTURES, count)).astype(int))
    sources, targets = ([side[row] for row in chosen] for side in (encoded.sources, encoded.targets))
    found = align(Translator(models, codec, options), sources, targets)
    drawn = [
        {
            "source": codec.source.pieces(np.asarray(source)) or [""],
            "target": [*codec.target.pieces(np.asarray(target)), "<end>"],
            "weights": {name: weights[index].tolist() for name, weights in found.items()},
        }
        for index, (source, target) in enumerate(zip(sources, targets, strict=True))
    ]
    write_json(folder.file(PICTURED), {"row": options.row, "pairs": drawn})
    panels = [(pair, name) for pair in drawn for name in found]
    keras_vattn.plots.alignment_heat_map(
        [pair["weights"][name] for pair, name in panels],
        [pair["source"] for pair, _ in panels],
        [pair["target"] for pair, _ in panels],
        [f"{options.row}: {name}" for _, name in panels],
        panels_per_row=len(found),
        path=folder.file("alignments.png"),
    )
