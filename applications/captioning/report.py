"""Reports of a trained model: likelihood, the metrics of captions, where the attention looks, pictures and tables.

Shapes: N images, C captions, T words with the end, R regions.
"""

import difflib

import numpy as np
import scipy.special
import tensorflow as tf

import keras_vattn
from applications.captioning.captions import Captions
from applications.captioning.data import Part, encode, read
from applications.captioning.metrics import caption_metrics, cider_of_images, pointing
from applications.captioning.options import MODELS
from applications.captioning.serve import Captioner
from applications.common.bounds import perplexity
from applications.common.option_values import first_value
from applications.common.papers import beside
from applications.common.progress import progress
from applications.common.runs import write_json
from applications.common.shown import Shown, random_rows, verdict
from applications.common.tables import Column, spread, title_from
from applications.text.coverage import compared_coverage, coverage_lines, coverage_report
from applications.text.pairs import write_samples
from applications.text.text import PAD
from applications.text.uncertainty import words_with_nats
from applications.vision import scenes
from applications.vision.codec import boxes_of
from applications.vision.program import BATCH

CURVES = {
    "perplexity": "perplexity, training",
    "val_perplexity": "perplexity, validation",
    "val_cider": "CIDEr, validation, greedy",
}
NUM_PICTURES = 3
# The figures behind the pictures of a run.
PICTURES = "pictures.json"
# Captions whose attention weights are drawn for their standard deviation.
NUM_STATISTICS = 32
# Seed of draws: reports of equal runs are equal.
SEED = 0
# Metrics of the most certain captions.
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
    Column("PPL (predictive)", "report.likelihood.predictive", logarithm=True),
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
    Column("entropy of the prior (nats)", "report.attention.prior_entropy", differs=False),
    Column("s/step", "step_seconds", differs=False),
    Column("parameters (M)", "parameters.generative", 3, 1e-6, differs=False),
)


def evaluate(run, part, evaluation=None):
    """Return the figures of a part, and the captions of its images."""
    reports = run.options.reports
    num_draws = first_value("num_draws", evaluation, reports)
    captioner = Captioner(run, first_value("num_beams", evaluation))
    report = {"num_images": len(part), "num_captions": len(part.texts)}
    report |= likelihood_report(captioner, run, part, num_draws)
    report["attention"] |= statistics(run, part)
    hypotheses = caption(captioner, part)
    outputs = {"hypotheses": hypotheses, "part": part}
    report["captions"] = caption_metrics(hypotheses, part.captions.captions, reports.java)
    if part.scenes is not None:
        report["true"] = float(np.mean(true_of(part, hypotheses)))
    if evaluation is not None and evaluation.uncertainty:
        outputs["sentences"] = written(captioner, part, num_draws)
        report["uncertainty"] = uncertainty_report(outputs["sentences"], run, part)
        print(*coverage_lines({run.options.model: [report["uncertainty"]]}, QUALITY), "", sep="\n\n")
    return report, outputs


def written(captioner, part, num_draws):
    """Return the captions of a part with their uncertainty, results of `Captioner.written`."""
    sentences = []
    for number, (inputs,) in enumerate(progress(part.images(BATCH), "uncertainty")):
        sentences += captioner.written(inputs["regions"], inputs["num_regions"], num_draws, number)
    return sentences


def uncertainty_report(sentences, run, part):
    """Return the `coverage_report` of the captions of a part, in CIDEr and, on scenes, the share of true ones."""
    texts = [sentence["text"] for sentence in sentences]
    of_images = {"cider": cider_of_images(texts, part.captions.captions, run.options.reports.java)}
    if part.scenes is not None:
        of_images["true"] = true_of(part, texts)
    scores = {name: lambda rows, values=values: values[rows].mean() for name, values in of_images.items()}
    kind = "dropout" if MODELS[run.options.model].alignment is None else "attention"
    return coverage_report(sentences, scores, kind if "mutual_information" in sentences[0] else None)


def true_of(part, texts):
    """Return whether each caption of the images of scenes is true, an array."""
    return np.array([text in scenes.true_captions(scene) for text, scene in zip(texts, part.scenes, strict=True)])


def caption(captioner, part, chosen=None, title="captioning"):
    """Return a caption of each image of a part, or of some, a list of str."""
    batches, captions = part.images(BATCH, chosen), []
    for (inputs,) in progress(batches, title) if title else batches:
        ids = captioner.search(inputs["regions"], inputs["num_regions"])["ids"]
        captions += [text.decode() for text in captioner.texts(ids).numpy()]
    return captions


def likelihood_report(captioner, run, part, num_draws):
    """Return the perplexity of the captions, with its kind, and the figures of the weights that predict them.

    Tokens count the end of a caption. A model that draws its attention also has the predictive log p: the logarithm of
    the mean over draws of p(caption | draws).
    """
    kind = MODELS[run.options.model]
    num_draws = num_draws if kind.alignment is not None else 0
    total, drawn, tokens, weights = 0.0, 0.0, 0, {}
    for number, (inputs, target) in enumerate(progress(part.batches(run.options), "likelihood")):
        captions = arguments_of(inputs)
        figures = {name: x.numpy() for name, x in captioner.read(*captions).items()}
        total += figures.pop("log_likelihood").sum(dtype="float64")
        tokens += np.count_nonzero(target)
        for name, x in figures.items():
            weights.setdefault(name, []).extend(x)
        values = [
            tf.reduce_sum(captioner.read_drawn(*captions, tf.constant([number, draw]))["log_likelihood"], axis=1)
            for draw in range(num_draws)
        ]
        if values:
            drawn += float(tf.reduce_sum(keras_vattn.metrics.predictive_log_likelihood(tf.stack(values))))
    report = {
        "kind": "exact" if kind.is_marginal else "plug-in",
        "perplexity": perplexity(-total / tokens),
        "nats": -total / len(part.texts),
        "num_tokens": tokens,
    }
    if num_draws:
        report |= {"predictive": perplexity(-drawn / tokens), "num_draws": num_draws}
    attention = {name: weights_report(part, x) for name, x in weights.items()}
    return {"likelihood": report, "attention": attention.pop("weights") | attention}


def arguments_of(inputs):
    """Return the arguments of `Captioner.read` for a batch of captions."""
    return [inputs[name] for name in ("regions", "num_regions", "target_input", "target")]


def weights_report(part, weights):
    """Return the figures of the weights of a part's captions, a list of C arrays (T, R): the mean entropy in nats, and
    on scenes how often a word's largest weight is at its region."""
    entropies = [scipy.special.entr(x).sum(axis=-1)[ids != PAD] for x, ids in zip(weights, part.target, strict=True)]
    report = {"entropy": float(np.concatenate(entropies).mean())}
    if part.scenes is not None and scenes.are_cells(part.codec.regions):
        report["pointing"] = pointing(weights, cells_of(part), part.tokens, KINDS)
    return report


def cells_of(part):
    """Return the region of each word of each caption of scenes, a list of C lists, -1 for a word about no region."""
    known = [scenes.true_captions(scene) for scene in part.scenes]
    return [known[image][text] for image, text in zip(part.image, part.texts, strict=True)]


def statistics(run, part):
    """Return how random the weights of some captions are, of a model that draws them: "weights_sd", the standard
    deviation of a weight, and with a prior its entropy in nats, means over words."""
    if MODELS[run.options.model].alignment is None:
        return {}
    batches = part.batches(run.options).unbatch().take(NUM_STATISTICS).batch(NUM_STATISTICS)
    inputs, target = next(iter(batches))
    decoded, memory, mask = run.models.decode(*arguments_of(inputs))
    attention = run.models.decoder.attention
    figures = attention.alignment_statistics(decoded["query"], memory, value_mask=mask, sample_seed=SEED)
    counted = (target != PAD).numpy()
    report = {"weights_sd": float(np.array(figures["weights_sd"])[counted].mean())}
    if "prior_entropy" in figures:
        report["prior_entropy"] = float(np.array(figures["prior_entropy"]).mean())
    return report


def looks(run, part, chosen, texts):
    """Return captions of some images with the weights of their words: dictionaries of "words", "weights" (T, R), and
    of BAM "prior" and "posterior", (T, R): draws for each word."""
    kind, captioner = MODELS[run.options.model], Captioner(run)
    ids = [part.captions.ids[index] for index in chosen]
    asked = Part(Captions(ids, [[text] for text in texts]), part.sources)
    of_texts = encode(run.options, part.codec, asked)
    each, rows = of_texts.batches(run.options).unbatch(), []
    for (inputs, _), tokens in zip(each.batch(1), of_texts.tokens, strict=True):
        captions, shape = arguments_of(inputs), (len(tokens), int(inputs["num_regions"][0]))
        weights = {"weights": captioner.read(*captions)["weights"]}
        if kind.is_bayesian:
            weights["prior"] = prior_draws(run, inputs, *shape)[None]
            weights["posterior"] = captioner.read_drawn(*captions, tf.constant([SEED, 0]))["weights"]
        cut = {name: np.array(x)[0, : shape[0], : shape[1]] for name, x in weights.items()}
        rows.append({"words": tokens, **cut})
    return rows


def prior_draws(run, inputs, num_words, num_regions):
    """Return weights drawn from the contextual prior, which is one for all words, (T, R).

    The draws are in logarithms: a draw of Gamma(1e-6) is no float32, and nearly always one region has all of it.
    """
    decoded, memory, mask = run.models.decode(*arguments_of(inputs))
    p = run.models.decoder.attention.prior_distribution(decoded["query"], memory, value_mask=mask)
    log_draws = p.log_sample((num_words, *p.like.shape), keras_vattn.random.as_seed(SEED))
    return scipy.special.softmax(np.array(log_draws)[:, 0, 0, :num_regions], axis=1)


def files(outputs):
    ids = outputs["part"].captions.ids
    return {"captions": ["\t".join(row) for row in zip(ids, outputs["hypotheses"], strict=True)]}


def heading(record):
    report = record["report"]
    text = f"{report['num_images']} {record['split']} images with {report['num_captions']} captions; "
    text += f"tokens of the metrics: {report['captions']['tokenizer']}"
    draws = report["likelihood"].get("num_draws")
    return text + (f"; predictive PPL of {draws} draws" if draws else "")


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
    sentences = outputs.get("sentences")
    hypotheses = outputs["hypotheses"] if sentences is None else list(map(words_with_nats, sentences))
    verdicts = [[]] * len(part) if part.scenes is None else map(_verdict, part.scenes, outputs["hypotheses"])
    rows = zip(part.captions.ids, hypotheses, part.captions.captions, verdicts, strict=True)
    samples = [
        [("image", image), ("caption", text), *(("reference", reference) for reference in references), *last]
        for image, text, references, last in rows
    ]
    return Shown(samples, drawn=pictures_of(run, part, outputs["hypotheses"]))


def _verdict(scene, text):
    """Return the last line of a sample: whether the caption of a scene is true, or the most similar true caption."""
    captions = scenes.true_captions(scene)
    return [verdict("" if text in captions else difflib.get_close_matches(text, captions, n=1, cutoff=0.0)[0])]


def report(run, part, record, outputs, shown):
    pictures = shown.drawn
    write_json(run.folder.file(PICTURES), {"model": run.options.model, "pictures": pictures})
    for picture in pictures:
        draw_caption(picture, part, run.folder.file(f"pictures/{picture['image']}.png"))
    return write_samples(run.folder.file("samples.txt"), shown.samples)


def compared(comparison):
    pictures = {run.name: comparison.read(run, PICTURES)["pictures"] for run in comparison.of_first_seed}
    parts = read(comparison.planned[0].options)
    draw_references(pictures, parts.get("test", parts["valid"]), comparison.folder)
    return []


def pictures_of(run, part, hypotheses):
    """Return where the model looks in some images for the words of its own caption, and of the first reference."""
    chosen = random_rows(len(part), NUM_PICTURES)
    references = [part.captions.captions[index] for index in chosen]
    caption_weights = looks(run, part, chosen, [hypotheses[index] for index in chosen])
    reference_weights = looks(run, part, chosen, [row[0] for row in references])
    boxes = boxes_of(run.codec.regions, part.sources, part.rows[chosen])
    ids = [part.captions.ids[index] for index in chosen]
    names = ("image", "references", "caption", "reference", "boxes")
    return [
        dict(zip(names, row)) for row in zip(ids, references, caption_weights, reference_weights, boxes, strict=True)
    ]


def draw_caption(picture, part, path):
    """Draw where a model looks for each word of its caption; of BAM a draw from the prior above a draw from the
    posterior, Figure 1 of Fan et al. 2020."""
    looks = picture["caption"]
    kinds = [kind for kind in ("prior", "posterior") if kind in looks]
    rows = [looks[kind] for kind in kinds or ("weights",)]
    title = " ".join(looks["words"]) + ("; a draw for each word" if kinds else "")
    _draw(picture, part, looks["words"], rows, kinds or None, title, path)


def draw_references(of_models, part, folder):
    """Draw where models look for the words of the same references, a row for each model, a PNG for each image; the
    pictures are a dictionary from the names of models."""
    for index, picture in enumerate(next(iter(of_models.values()))):
        words = picture["reference"]["words"]
        rows = [pictures[index]["reference"]["weights"] for pictures in of_models.values()]
        path = folder / f"attention_{picture['image']}.png"
        _draw(picture, part, words, rows, list(of_models), f"reference: {' '.join(words)}", path)


def _draw(picture, part, words, rows, labels, title, path):
    # A run on features may lack images or boxes, and a caption may lack words.
    if part.sources.images is None or not np.any(picture["boxes"]) or not words:
        return
    image = part.sources.images.read(part.sources.images.rows_of([picture["image"]])[0])
    weights = [row for of_row in rows for row in of_row]
    keras_vattn.plots.image_attention(image, weights, picture["boxes"], words, labels, title, path=path)


def fan(comparison):
    """Return Table 3 of Fan et al. 2020, beside the paper's figures."""
    title_of = lambda name: (title_from(name, lambda model: MODELS[model].title),)  # noqa: E731
    return [beside("Table 3 of Fan et al. 2020", "fan_3", (*BLEU, *OTHERS), comparison.records, first_of=title_of)]


def uncertainty(comparison):
    """Return the quality of the captions that every model is most certain of."""
    return compared_coverage(comparison, QUALITY)


LAYOUTS = {"fan": fan, "uncertainty": uncertainty}
