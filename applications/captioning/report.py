"""Report the likelihood, the caption metrics and the attention of a trained model, and print tables.

Shapes: N images, C captions, T words with the end token, R regions.
"""

import difflib
import functools

import numpy as np
import scipy.special

from applications.captioning.decode import Captioner
from applications.captioning.metrics import caption_metrics, cider_of_images, pointing
from applications.captioning.model import MODELS
from applications.captioning.pictures import draw_pictures
from applications.common.option_values import first_value
from applications.common.papers import with_paper
from applications.common.progress import progress
from applications.common.shown import Shown, verdict
from applications.common.tables import Column, spread, title_from
from applications.text.coverage import compared_coverage, coverage_lines, coverage_report
from applications.text.pairs import write_samples
from applications.text.perplexity import likelihood_report as perplexity_report
from applications.text.text import PAD
from applications.text.uncertainty import words_with_nats
from applications.vision import scenes
from applications.vision.program import BATCH

CURVES = {
    "perplexity": "perplexity, training",
    "val_perplexity": "perplexity, validation",
    "val_cider": "CIDEr, validation, greedy",
}
NUM_STATISTICS = 32
SEED = 0
# Metrics in `--layout uncertainty`: title, and factor of the metric.
QUALITY = {"cider": ("CIDEr", 100.0), "true": ("True captions (%)", 100.0)}
KINDS = {"color": tuple(scenes.COLORS), "shape": scenes.SHAPES}

BLEU = tuple(Column(f"BLEU-{order}", f"report.captions.bleu_{order}", 1, 100) for order in (4, 3, 2, 1))
OTHERS = tuple(
    Column(title, f"report.captions.{name}", 1, 100)
    for title, name in (("CIDEr", "cider"), ("ROUGE-L", "rouge_l"), ("METEOR", "meteor"))
)
COLUMNS = (
    Column("kind of PPL", "report.likelihood.kind"),
    Column("PPL", "report.likelihood.perplexity", logarithm=True),
    *BLEU,
    *OTHERS,
    Column("true captions (%)", "report.true", 1, 100),
    Column("entropy of attention (nats)", "report.attention.entropy"),
    *(
        Column(f"pointing, {name} (%)", f"report.attention.pointing.{name}.accuracy", 1, 100)
        for name in ("all", *KINDS)
    ),
    Column("pointing, p(region | word) (%)", "report.attention.posterior.pointing.all.accuracy", 1, 100),
    Column("chance (%)", "report.attention.pointing.all.chance", 1, 100, differs=False),
    Column("sd of weights", lambda record: spread(record["report"]["attention"].get("weights_sd")), differs=False),
    Column("s/step", "step_seconds", differs=False),
    Column("parameters (M)", "parameters.generative", 3, 1e-6, differs=False),
)


def evaluate(run, part, evaluation=None):
    """Return the report on a data split, and the captions of its images."""
    reports = run.options.reports
    captioner = Captioner(run, first_value("num_beams", evaluation))
    report = {"num_images": len(part), "num_captions": len(part.texts)}
    report |= likelihood_report(captioner, run, part)
    report["attention"] |= weights_deviation(run, part)
    hypotheses = caption(captioner, part)
    outputs = {"hypotheses": hypotheses, "part": part}
    report["captions"] = caption_metrics(hypotheses, part.captions.captions, reports.java)
    if part.scenes is not None:
        report["true"] = float(np.mean(true_of(part, hypotheses)))
    if evaluation is not None and evaluation.uncertainty:
        num_draws = first_value("num_draws", evaluation, reports)
        outputs["sentences"] = []
        for number, (inputs,) in enumerate(progress(part.images(BATCH), "uncertainty")):
            outputs["sentences"] += captioner.written(**inputs, num_draws=num_draws, seed=number)
        report["uncertainty"] = uncertainty_report(outputs["sentences"], run, part)
        print(*coverage_lines({run.options.model: [report["uncertainty"]]}, QUALITY), "", sep="\n\n")
    return report, outputs


def uncertainty_report(sentences, run, part):
    """Return a `coverage_report` whose metrics are CIDEr and, for rendered scenes, the fraction of true captions."""
    texts = [sentence["text"] for sentence in sentences]
    metrics = {"cider": cider_of_images(texts, part.captions.captions, run.options.reports.java)}
    if part.scenes is not None:
        metrics["true"] = true_of(part, texts)
    scores = {name: lambda rows, values=values: values[rows].mean() for name, values in metrics.items()}
    kind = "dropout" if MODELS[run.options.model].alignment is None else "attention"
    return coverage_report(sentences, scores, kind if "mutual_information" in sentences[0] else None)


def true_of(part, texts):
    """Return a boolean array (N,): whether each text is a true caption of its scene."""
    return np.array([text in scenes.true_captions(scene) for text, scene in zip(texts, part.scenes, strict=True)])


def caption(captioner, part, count=None, title="captioning"):
    """Return one caption for each image in a split, or for each of the first `count` images."""
    batches, captions = part.images(BATCH, count), []
    for (inputs,) in progress(batches, title) if title else batches:
        ids = captioner.search(**inputs)["ids"]
        captions += [text.decode() for text in captioner.texts(ids).numpy()]
    return captions


def likelihood_report(captioner, run, part):
    """Return the dictionaries "likelihood", a `perplexity_report`, and "attention", a `weights_report`.

    "likelihood" also contains a "kind": "exact" if the likelihood of a word is a sum over all regions, else "plug-in".
    End tokens count as tokens.
    """
    weights = {}

    def log_likelihood(inputs, target, number):
        figures = {name: x.numpy() for name, x in captioner.read(**inputs).items()}
        words = figures.pop("log_likelihood")
        for name, x in figures.items():
            weights.setdefault(name, []).extend(x)
        return words.astype("float64")

    kind = "exact" if MODELS[run.options.model].is_marginal else "plug-in"
    likelihood = perplexity_report(log_likelihood, part.batches(run.options))
    attention = {name: weights_report(part, x) for name, x in weights.items()}
    return {"likelihood": {"kind": kind} | likelihood, "attention": attention.pop("weights") | attention}


def weights_report(part, weights):
    """Return the mean "entropy" of `weights`, C arrays (T, R), in nats. For rendered scenes, the report also contains
    "pointing"."""
    entropies = [scipy.special.entr(x).sum(axis=-1)[ids != PAD] for x, ids in zip(weights, part.target, strict=True)]
    report = {"entropy": float(np.concatenate(entropies).mean())}
    if part.scenes is not None and scenes.are_cells(part.codec.regions):
        report["pointing"] = pointing(weights, cells_of(part), part.tokens, KINDS)
    return report


def cells_of(part):
    """Return one list per caption: the region of each word, or -1 if a word describes no region."""
    true_captions = [scenes.true_captions(scene) for scene in part.scenes]
    return [true_captions[image][text] for image, text in zip(part.image, part.texts, strict=True)]


def weights_deviation(run, part):
    """Return "weights_sd", the mean standard deviation of sampled attention weights, in a dictionary.

    For deterministic weights, the dictionary is empty. The mean is over the words of `NUM_STATISTICS` captions.
    """
    if MODELS[run.options.model].alignment is None:
        return {}
    batches = part.batches(run.options).unbatch().take(NUM_STATISTICS).batch(NUM_STATISTICS)
    inputs, target = next(iter(batches))
    decoded, memory, mask = run.models.decode(**inputs)
    attention = run.models.decoder.attention
    figures = attention.alignment_statistics(decoded["query"], memory, value_mask=mask, sample_seed=SEED)
    return {"weights_sd": float(np.array(figures["weights_sd"])[(target != PAD).numpy()].mean())}


def files(outputs):
    ids = outputs["part"].captions.ids
    return {"captions": ["\t".join(row) for row in zip(ids, outputs["hypotheses"], strict=True)]}


def heading(record):
    report = record["report"]
    images = f"{report['num_images']} {record['split']} images with {report['num_captions']} captions"
    return f"{images}; tokens of the metrics: {report['captions']['tokenizer']}"


def example_of(part):
    return part.captions.ids[0]


def summary(report):
    lines, attention = [], report["attention"]
    if "true" in report:
        count = report["num_images"]
        lines.append(f"{round(count * report['true']):,} of {count:,} captions are true.")
    if "pointing" in attention:
        pointing = attention["pointing"]["all"]
        lines.append(
            f"In reference captions the attention points at the named object for {100 * pointing['accuracy']:.1f}% "
            f"of {pointing['num_words']:,} words, {100 * pointing['chance']:.1f}% by chance."
        )
    return lines


def shown(run, part, outputs):
    sentences, hypotheses, samples = outputs.get("sentences"), outputs["hypotheses"], []
    written = hypotheses if sentences is None else list(map(words_with_nats, sentences))
    for row, references in enumerate(part.captions.captions):
        sample = [("image", part.captions.ids[row]), ("caption", written[row])]
        sample += [("reference", reference) for reference in references]
        if part.scenes is not None:
            true, text = scenes.true_captions(part.scenes[row]), hypotheses[row]
            sample.append(verdict("" if text in true else difflib.get_close_matches(text, true, n=1, cutoff=0.0)[0]))
        samples.append(sample)
    return Shown(samples)


def report(run, part, record, outputs, shown):
    draw_pictures(run, part, outputs["hypotheses"])
    return write_samples(run.folder.file("samples.txt"), shown.samples)


def fan(comparison):
    """Return Table 3 of Fan et al. 2020, with our results beside the published ones."""
    title_of = lambda name: (title_from(name, lambda model: MODELS[model].title),)  # noqa: E731
    return [with_paper("Table 3 of Fan et al. 2020", "fan_3", (*BLEU, *OTHERS), comparison.records, first_of=title_of)]


LAYOUTS = {"fan": fan, "uncertainty": functools.partial(compared_coverage, metrics=QUALITY)}
