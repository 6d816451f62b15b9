"""Reports of a trained model: likelihood, the metrics of captions, where the attention looks.

Shapes: N images, C captions, T words with the end, R regions.
"""

import numpy as np
import tensorflow as tf

import keras_vattn
from applications.captioning.captions import Captions
from applications.captioning.data import EncodedPart, Part
from applications.captioning.generation import Captioner
from applications.captioning.metrics import caption_metrics, pointing
from applications.captioning.model import region_mask
from applications.captioning.options import MODELS
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
    """Return everything reported about a part, and the captions of its images."""
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
    found = []
    for (inputs,) in progress(part.images(BATCH, chosen), title) if title else part.images(BATCH, chosen):
        ids = captioner.search(inputs["regions"], inputs["num_regions"])["ids"]
        found += [text.decode() for text in captioner.texts(ids).numpy()]
    return found


def likelihood_report(captioner, run, part, num_draws):
    """Return the perplexity of the captions, its kind named, and what is known of the attention that predicts them.

    Tokens count the end of a caption. An attention that is drawn has the predictive log p, too: the logarithm of the
    mean over draws of p(caption | draws).
    """
    kind = MODELS[run.options.model]
    num_draws = num_draws if kind.alignment is not None else 0
    total, drawn, tokens, looked = 0.0, 0.0, 0, Looked(part)
    for number, (inputs, target) in enumerate(progress(part.batches(run.options), "likelihood")):
        arguments = [inputs[name] for name in ("regions", "num_regions", "target_input", "target")]
        found = {name: x.numpy() for name, x in captioner.read(*arguments).items()}
        total += found.pop("log_likelihood").sum(dtype="float64")
        lengths = np.count_nonzero(target != PAD, axis=1)
        tokens += int(lengths.sum())
        looked.add(found, lengths, inputs["num_regions"].numpy())
        values = [
            tf.reduce_sum(captioner.read_drawn(*arguments, tf.constant([number, draw]))["log_likelihood"], axis=1)
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
    return {"likelihood": report, "attention": looked.report()}


class Looked:
    """Where models look for the words of a part's captions: entropies in nats, and whether it is the right region where
    that is known; of the weights, and of the posterior that has seen the word."""

    def __init__(self, part):
        self.part = part
        self.knows_cells = part.scenes is not None and scenes.are_cells(part.codec.regions)
        self.entropies, self.weights = {}, {}

    def add(self, found, lengths, num_regions):
        """Take the weights of a batch, a dictionary of arrays (B, T, R)."""
        for name, weights in found.items():
            for matrix, length, count in zip(weights, lengths, num_regions, strict=True):
                rows = matrix[:length]
                entropy = -np.sum(rows * np.log(np.where(rows > 0.0, rows, 1.0)), axis=-1)
                self.entropies.setdefault(name, []).append(entropy)
                if self.knows_cells:
                    self.weights.setdefault(name, []).append(matrix[: length - 1, :count])

    def report(self):
        """Return the figures of the weights, and in "posterior" those of the posterior."""
        reports = {name: {"entropy": float(np.concatenate(rows).mean())} for name, rows in self.entropies.items()}
        for name, weights in self.weights.items():
            reports[name]["pointing"] = pointing(weights, cells_of(self.part), self.part.tokens, KINDS)
        return reports.pop("weights") | reports


def cells_of(part):
    """Return the region that each word of each caption of scenes is about, a list of C lists, -1 for none."""
    known = [scenes.true_captions(scene) for scene in part.scenes]
    found = [known[image][text] for image, text in zip(part.image, part.texts, strict=True)]
    return [cells[: len(words)] for cells, words in zip(found, part.tokens, strict=True)]


def statistics(run, part):
    """Return how random the weights of some captions are, of a model that draws them: "weights_sd", the standard
    deviation of a weight, and with a prior its entropy in nats, means over words."""
    if MODELS[run.options.model].alignment is None:
        return {}
    batches = part.batches(run.options).unbatch().take(NUM_STATISTICS).batch(NUM_STATISTICS)
    inputs, target = next(iter(batches))
    query, memory, mask = queries(run, inputs)
    attention = run.models.decoder.attention
    found = attention.alignment_statistics(query, memory, value_mask=mask, sample_seed=SEED)
    counted = (target != PAD).numpy()
    report = {"weights_sd": float(np.array(found["weights_sd"])[counted].mean())}
    if "prior_entropy" in found:
        report["prior_entropy"] = float(np.array(found["prior_entropy"]).mean())
    return report


def queries(run, inputs):
    """Return what the decoder asks with for captions (C, T, units), the memory (C, R, units) and its mask (C, R)."""
    models = run.models
    memory = models.encoder(inputs["regions"], training=False)
    mask = region_mask(inputs["num_regions"], memory.shape[1])
    embedded = models.embedding(inputs["target_input"], training=False)
    decoded = models.decoder(
        embedded,
        memory,
        inputs_mask=inputs["target"] != PAD,
        memory_mask=mask,
        return_attention_scores=True,
        return_logits=True,
    )
    return decoded["query"], memory, mask


def looks(run, part, chosen, texts=None):
    """Return the captions of some images with the weights of their words, a list of dictionaries: "words", "weights"
    (T, R), and of BAM "prior" and "posterior", (T, R): draws for each word.

    Args:
        run: `Run`.
        part: `EncodedPart`.
        chosen: Numbers of the images.
        texts: A caption of each, or `None` for the model's own.
    """
    captioner, kind = Captioner(run), MODELS[run.options.model]
    texts = caption(captioner, part, chosen, title=None) if texts is None else texts
    ids = [part.captions.ids[index] for index in chosen]
    asked = Part(Captions(ids, [[text] for text in texts]), part.sources)
    of_texts = EncodedPart.of(run.options, part.codec, asked)
    found = []
    for (inputs, _), tokens in zip(of_texts.batches(run.options).unbatch().batch(1), of_texts.tokens, strict=True):
        arguments = [inputs[name] for name in ("regions", "num_regions", "target_input", "target")]
        shape = len(tokens), int(inputs["num_regions"][0])
        weights = {"weights": captioner.read(*arguments)["weights"]}
        if kind.is_bayesian:
            weights["prior"] = prior_draws(run, inputs, *shape)[None]
            weights["posterior"] = captioner.read_drawn(*arguments, tf.constant([SEED, 0]))["weights"]
        cut = {name: np.array(x)[0, : shape[0], : shape[1]] for name, x in weights.items()}
        found.append({"words": tokens, **cut})
    return found


def prior_draws(run, inputs, num_words, num_regions):
    """Return weights drawn from the contextual prior, which is one for all words, (T, R).

    In logarithms: a draw of Gamma(1e-6) is no float32, and nearly always that of one region is all.
    """
    query, memory, mask = queries(run, inputs)
    p = run.models.decoder.attention.prior_distribution(query, memory, value_mask=mask)
    log_draws = p.log_sample((num_words, *p.like.shape), keras_vattn.random.as_seed(SEED))
    draws = np.array(log_draws)[:, 0, 0, :num_regions]
    weights = np.exp(draws - draws.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)
