"""Reports of a trained model: likelihood, the metrics of captions, where the attention looks.

Shapes: N images, C captions, T words with the end, R regions.
"""

import numpy as np
import scipy.special
import tensorflow as tf

import keras_vattn
from applications.captioning.captions import Captions
from applications.captioning.data import EncodedPart, Part
from applications.captioning.metrics import caption_metrics, pointing
from applications.captioning.options import MODELS
from applications.captioning.serve import Captioner
from applications.common.bounds import perplexity
from applications.common.progress import progress
from applications.text.text import PAD
from applications.vision import scenes
from applications.vision.program import BATCH

# Captions whose attention weights are drawn for their standard deviation.
NUM_STATISTICS = 32
# Seed of draws: reports of equal runs are equal.
SEED = 0
KINDS = {"color": tuple(scenes.COLORS), "shape": scenes.SHAPES}


def evaluate(run, part, num_beams=None, num_draws=None):
    """Return the figures of a part, and the captions of its images."""
    reports = run.options.reports
    captioner = Captioner(run, num_beams)
    report = {"num_images": len(part), "num_captions": len(part.texts)}
    report |= likelihood_report(captioner, run, part, reports.num_draws if num_draws is None else num_draws)
    report["attention"] |= statistics(run, part)
    hypotheses = caption(captioner, part)
    report["captions"] = caption_metrics(hypotheses, part.captions.captions, reports.java)
    if part.scenes is not None:
        true = [text in scenes.true_captions(scene) for text, scene in zip(hypotheses, part.scenes, strict=True)]
        report["true"] = float(np.mean(true))
    return report, {"hypotheses": hypotheses, "part": part}


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


def looks(run, part, chosen, texts=None):
    """Return the captions of some images, by default the model's own, with the weights of their words: dictionaries of
    "words", "weights" (T, R), and of BAM "prior" and "posterior", (T, R): draws for each word."""
    captioner = Captioner(run)
    texts = caption(captioner, part, chosen, title=None) if texts is None else texts
    ids = [part.captions.ids[index] for index in chosen]
    asked = Part(Captions(ids, [[text] for text in texts]), part.sources)
    of_texts = EncodedPart.of(run.options, part.codec, asked)
    rows = []
    for (inputs, _), tokens in zip(of_texts.batches(run.options).unbatch().batch(1), of_texts.tokens, strict=True):
        captions, shape = arguments_of(inputs), (len(tokens), int(inputs["num_regions"][0]))
        weights = {"weights": captioner.read(*captions)["weights"]}
        if MODELS[run.options.model].is_bayesian:
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
