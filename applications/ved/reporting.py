"""What a run leaves to be read: the table, the samples and the pictures."""

import numpy as np
import tensorflow as tf

import keras_vattn
from applications.common.runs import write_text_atomically
from applications.ved.options import find_row

CURVES = ("val_bleu_2", "val_bleu_4", "val_entropy", "val_dist_1")
CURVE_LABELS = {
    "val_bleu_2": "BLEU-2",
    "val_bleu_4": "BLEU-4",
    "val_entropy": "Entropy (nats)",
    "val_dist_1": "Dist-1",
    "val_map_bleu_2": "BLEU-2, MAP",
    "val_map_bleu_4": "BLEU-4, MAP",
}


def write_report(folder, record, sentences):
    """Write report.txt: the table, and samples beside their references."""
    report = record["report"]
    lines = [
        f"{record['row']}, seed {record['seed']} (one seed, no claim), "
        f"{report['num_sources']} {record['split']} sources",
        "",
    ]
    lines.append(
        f"{'inference':10}"
        + "".join(f"{name:>9}" for name in ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "Entropy", "Dist-1", "Dist-2"))
    )
    for name in ("map", "sampling"):
        if name in report:
            row = report[name]
            cells = [f"{row[f'bleu_{order}']:9.2f}" for order in range(1, 5)]
            cells += [f"{row[key]:9.3f}" if key in row else f"{'-':>9}" for key in ("entropy", "dist_1", "dist_2")]
            lines.append(f"{name.upper() if name == 'map' else name:10}" + "".join(cells))
    lines += ["", f"BLEU: {report['map']['bleu_signature']}"]
    if "sampling" in report:
        sampling = report["sampling"]
        lines.append(
            f"of {record['options']['num_draws']} draws per source, {sampling['distinct_draws']:.2f} different, "
            f"{sampling['distinct_references_among_draws']:.2f} of them different references"
            + ("" if sampling["self_bleu"] is None else f"; self-BLEU {sampling['self_bleu']:.1f}")
        )
    lines += [f"{name}: {value:.3f}" for name, value in report["likelihood"].items()]
    lines.append(f"trained {record['epochs']} epochs, {record['steps']} steps, in {record['train_seconds']:.0f} s")
    lines += ["", *_samples(sentences, 5)]
    write_text_atomically(folder.file("report.txt"), "\n".join(lines) + "\n")
    write_text_atomically(folder.file("samples.txt"), "\n".join(_samples(sentences, 200)) + "\n")


def _samples(sentences, maximum):
    lines = []
    count = len(sentences["sources"])
    for index in np.unique(np.linspace(0, count - 1, min(maximum, count)).astype(int)):
        lines.append(f"source     {sentences['sources'][index]}")
        lines += [f"reference  {reference}" for reference in sentences["references"][index]]
        lines.append(f"MAP        {sentences['greedy'][index]}")
        if sentences["draws"]:
            lines += [f"draw       {sentence}" for sentence in sentences["draws"][index][:3]]
        lines.append("")
    return lines


def write_pictures(folder, options, generator, codec, rows, sentences):
    """Write curves.png and, for a row with attention, alignment.png."""
    metrics = [name for name in CURVES if any(name in row for row in rows)] or ["val_map_bleu_2", "val_map_bleu_4"]
    history = {name: [row.get(name) for row in rows] for name in ("epoch", *metrics)}
    keras_vattn.plots.training_curves(
        {options.row: history}, metrics, metric_labels=CURVE_LABELS, path=folder.file("curves.png")
    )
    if find_row(options.row).attention is None:
        return
    weights, source_tokens, target_tokens = [], [], []
    count = len(sentences["sources"])
    for index in np.unique(np.linspace(0, count - 1, min(4, count)).astype(int)):
        source = sentences["sources"][index]
        ids = codec.source.encode(tf.constant([source]), options.max_source_length)
        decoded = generator.greedy(ids)
        length = int(decoded["lengths"][0])
        words = codec.source.tokenizer.token_lists([source])[0][: ids.shape[1]]
        target = [*sentences["greedy"][index].split(), "<end>"]
        weights.append(np.asarray(decoded["weights"][0, :length, : len(words)], "float32"))
        source_tokens.append(words)
        target_tokens.append(target[:length] + [""] * (length - len(target)))
    keras_vattn.plots.alignment_heat_map(weights, source_tokens, target_tokens, path=folder.file("alignment.png"))
