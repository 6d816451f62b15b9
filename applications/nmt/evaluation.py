"""Reports of a trained translation model: perplexities with their kind, BLEU and chrF, alignments."""

import numpy as np
import sacrebleu.metrics
import tensorflow as tf

import keras_vattn
from applications.common.progress import progress
from applications.nmt import alignments
from applications.nmt.generation import Translator
from applications.nmt.options import find_row
from applications.nmt.subwords import CONTINUES
from applications.text.text import END, PAD, START

BATCH = 32


def evaluate_split(models, codec, options, pairs, encoded, inference, links=None):
    """Return everything reported about a split under one inference, and the sentences it was computed from.

    Args:
        models: `Models`.
        codec: `Codec`.
        options: `Options`.
        pairs: `ParallelText`.
        encoded: `EncodedPairs` of it.
        inference: `Inference`.
        links: Gold `Links` of the pairs, or `None`.
    """
    translator = Translator(models, codec, options, inference)
    report = {"num_sentences": len(pairs), "inference": inference.name}
    report["likelihood"] = likelihood_report(translator, models, options, encoded, inference)
    report["alignment"] = alignment_report(translator, codec, options, pairs, encoded, links)
    hypotheses = translate(translator, codec, encoded.sources)
    references = normalized(codec, pairs.targets)
    report["translation"] = quality(hypotheses, references)
    return report, {"sources": pairs.sources, "references": references, "hypotheses": hypotheses}


def translate(translator, codec, sources, title="translating"):
    """Return the best sentence of the beam for each list of source ids, in their order."""
    # Sentences of like length together: a batch ends with its longest.
    order = np.argsort([len(ids) for ids in sources], kind="stable")
    sentences = [None] * len(sources)
    for start in progress(range(0, len(order), BATCH), title):
        rows = order[start : start + BATCH]
        ids = translator.beam(tf.constant(padded([sources[row] for row in rows])))["ids"]
        for row, text in zip(rows, codec.target.decode(ids).numpy(), strict=True):
            sentences[row] = text.decode()
    return sentences


def padded(rows):
    """Return lists of ids as one array (B, longest), at least one column."""
    array = np.full((len(rows), max(1, *(len(row) for row in rows))), PAD, np.int32)
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return array


def normalized(codec, sentences):
    """Return sentences as the model would write them: lower case where it lowers, its Unicode form, segments joined.

    Unknown words stay as they are: a reference is not made easier by what the model cannot write.
    """
    texts = codec.target.tokenizer.normalize(tf.constant(sentences)).numpy()
    return [" ".join(text.decode().split()).replace(f"{CONTINUES} ", "") for text in texts]


def quality(hypotheses, references):
    """Return BLEU and chrF with sacrebleu's signatures, and how many sentences are the reference exactly."""
    report = {}
    for name, metric in translation_metrics().items():
        report[name] = metric.corpus_score(hypotheses, [references]).score
        report[f"{name}_signature"] = str(metric.get_signature())
    exact = [one == other for one, other in zip(hypotheses, references, strict=True)]
    report["exact_match"] = float(np.mean(exact))
    return report


def translation_metrics():
    """Return the metrics of sacrebleu that translations are reported with."""
    return {"bleu": sacrebleu.metrics.BLEU(tokenize="13a", force=True), "chrf": sacrebleu.metrics.CHRF()}


def likelihood_report(translator, models, options, encoded, inference):
    """Return the perplexity of the references, its kind named, and for a row with an inference network the bound.

    Tokens count the end of the sentence. A continuous alignment that is drawn has the predictive log p: the logarithm
    of the mean over draws of p(y | draws), of the whole sentence where the decoder is fed what was drawn, of each word
    where it is not, and the draws of words are independent.
    """
    # Of the row relaxed the value at the mean of q is no bound; that of wake-sleep is the exact one already.
    row = find_row(options.row)
    has_bound = row.needs_posterior and (row.objective or "").startswith("elbo")
    draws = inference.count if inference.kind == "sample" and models.latent is None else None

    @tf.function(reduce_retracing=True, autograph=False)
    def drawn(source, target_input, target, seed):
        with keras_vattn.posterior_draws(models.training, seed=seed):
            value = translator.log_likelihood.python_function(source, target_input, target)
            return tf.reduce_sum(value, axis=1) if row.feeding == "sampled" else value

    total, tokens, rows = 0.0, 0, 0
    for index, (inputs, target) in enumerate(progress(encoded.batches(options), "likelihood")):
        arguments = inputs["source"], inputs["target_input"], target
        if draws is None:
            total += float(tf.reduce_sum(translator.log_likelihood(*arguments)))
        else:
            values = [drawn(*arguments, tf.constant([index, draw])) for draw in range(draws)]
            total += float(tf.reduce_sum(tf.reduce_logsumexp(tf.stack(values), axis=0) - np.log(draws)))
        tokens += int(tf.math.count_nonzero(target))
        rows += int(target.shape[0])
    kind = {"exact": "exact", "kmax": f"K-max {inference.count}", "soft": "plug-in"}.get(inference.kind)
    report = {
        "kind": kind or f"predictive({inference.count})",
        "perplexity": float(np.exp(-total / tokens)),
        "nats": -total / rows,
        "num_tokens": tokens,
    }
    # With alignments from a file only the parts that have them have a bound.
    if has_bound and (options.posterior_file is None or encoded.posteriors is not None):
        report |= bound_report(models, options, encoded, tokens, rows)
    return report


def bound_report(models, options, encoded, tokens, rows):
    """Return the ELBO, its expectation enumerated, in nats, its KL, and its perplexity."""

    @tf.function(reduce_retracing=True, autograph=False)
    def value(inputs):
        return models.training(inputs, training=False), keras_vattn.divergences(models.training)

    total, divergence = 0.0, 0.0
    for inputs, target in progress(encoded.batches(options), "bound"):
        words, added = value(inputs)
        total += float(tf.reduce_sum(tf.where(target != PAD, words, 0.0)))
        divergence += float(sum(added.values())) * len(target)
    divergence /= rows
    elbo = total / rows - divergence
    return {
        "elbo_nats": elbo,
        "kl_nats": divergence,
        "elbo_perplexity": float(np.exp(-elbo * rows / tokens)),
    }


def alignment_report(translator, codec, options, pairs, encoded, links=None):
    """Return the entropies of the alignments of `Translator.alignments` in nats per word, and with gold links their
    quality.

    Subwords are merged to words: a target word is linked to its most probable source word.
    """
    entropies, predicted, words = {}, {}, None
    if links is not None:
        words = list(
            zip(codec.source.words_of_pieces(pairs.sources), codec.target.words_of_pieces(pairs.targets), strict=True)
        )
    for rows in progress([range(i, min(i + BATCH, len(pairs))) for i in range(0, len(pairs), BATCH)], "alignments"):
        sources, targets = ([side[row] for row in rows] for side in (encoded.sources, encoded.targets))
        found = align(translator, sources, targets)
        for name, weights in found.items():
            for row, matrix in zip(rows, weights, strict=True):
                entropies.setdefault(name, []).append(alignments.entropy(matrix))
                if links is not None:
                    lengths = len(encoded.sources[row]), len(encoded.targets[row])
                    merged = word_alignment(matrix, *(x[:n] for x, n in zip(words[row], lengths, strict=True)))
                    predicted.setdefault(name, []).append(alignments.links_of(merged))
    report = {f"{name}_entropy": float(np.concatenate(rows).mean()) for name, rows in entropies.items()}
    for name, rows in predicted.items():
        report[name] = alignments.alignment_scores(rows, links)._asdict()
        for measure in ("f1", "aer"):
            report[name][f"{measure}_interval"] = list(alignments.bootstrap_interval(rows, links, measure)[1:])
    if "prior" in predicted:
        for name in ("posterior", "exact"):
            if name in predicted:
                difference = alignments.compare_alignments(predicted[name], predicted["prior"], links, "f1")
                report[f"{name}_f1_minus_prior_f1"] = dict(difference._asdict())
    return report


def align(translator, sources, targets):
    """Return the alignments of pairs of id lists: a dictionary of lists of (T, S) arrays, T with the end."""
    source, target_input, target = teacher_forced(sources, targets)
    found = translator.alignments(tf.constant(source), tf.constant(target_input), tf.constant(target))
    return {
        name: [
            weights[index, : len(targets[index]) + 1, : max(len(sources[index]), 1)] for index in range(len(sources))
        ]
        for name, weights in ((name, x.numpy()) for name, x in found.items())
    }


def teacher_forced(sources, targets):
    """Return source, target_input and target (B, ...) of lists of ids."""
    target_input = padded([[START, *row] for row in targets])
    return padded(sources), target_input, padded([[*row, END] for row in targets])


def word_alignment(weights, source_words, target_words):
    """Return the (T_words, S_words) alignment of a (T, S) one of pieces; the end of the sentence is left out."""
    pieces = weights[: len(target_words), : len(source_words)]
    return alignments.merge_to_words(pieces, source_words, target_words)


def k_curve_report(translator, options, encoded, maximum=10):
    """Return log p per word in nats for K = 1 ... maximum, renormalised as K-max does, and not."""
    renormalised, plain, tokens = np.zeros(maximum), np.zeros(maximum), 0
    for inputs, target in progress(encoded.batches(options), "K curve"):
        joint, prior = translator.k_curve(inputs["source"], inputs["target_input"], target)
        counted = target.numpy() != PAD
        joint, prior = joint.numpy()[counted], prior.numpy()[counted]
        tokens += len(joint)
        for index in range(maximum):
            at = min(index, joint.shape[1] - 1)
            plain[index] += joint[:, at].sum()
            renormalised[index] += (joint[:, at] - prior[:, at]).sum()
    return {
        "k": list(range(1, maximum + 1)),
        "renormalised": list(renormalised / tokens),
        "plain": list(plain / tokens),
    }
