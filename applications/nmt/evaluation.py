"""Reports of a trained translation model: perplexities with their kind, BLEU and chrF, alignments."""

import numpy as np
import sacrebleu.metrics
import tensorflow as tf

import keras_vattn
from applications.common.bounds import bound_report
from applications.common.progress import progress
from applications.nmt import alignments
from applications.nmt.generation import Translator
from applications.nmt.options import MODELS
from applications.nmt.subwords import CONTINUES
from applications.text.batching import padded, teacher_forced
from applications.text.perplexity import likelihood_report
from applications.text.text import PAD

BATCH = 32


def evaluate(run, part, inference=None, bound=None):
    """Return the report on an `EncodedText` under one inference, and the sentences it was computed from.

    Args:
        run, part: The run and the part.
        inference: Name of the inference, or `None` for the model's own.
        bound: Result of `bound_of`, which is the same under every inference; `None` to have it computed.
    """
    translator = Translator(run, inference)
    pairs = part.pairs
    report = {"num_sentences": len(pairs), "inference": translator.inference.value.name}
    report["likelihood"] = likelihood_of(translator, run, part) | (bound_of(run, part) if bound is None else bound)
    report["alignment"] = alignment_report(translator, run.codec, part)
    hypotheses = translate(translator, run.codec, part.sources)
    references = normalized(run.codec, pairs.targets)
    report["translation"] = quality(hypotheses, references, run.options.text.lowercase)
    return report, {"sources": pairs.sources, "references": references, "hypotheses": hypotheses}


def translate(translator, codec, sources, title="translating"):
    """Return the best sentence of the beam for each list of source ids, in their order."""
    # Sentences of like length together: a batch ends with its longest.
    order = np.argsort([len(ids) for ids in sources], kind="stable")
    sentences = [None] * len(sources)
    starts = range(0, len(order), BATCH)
    for start in progress(starts, title) if title else starts:
        rows = order[start : start + BATCH]
        ids = translator.beam(tf.constant(padded([sources[row] for row in rows])))["ids"]
        for row, text in zip(rows, codec.target.decode(ids).numpy(), strict=True):
            sentences[row] = text.decode()
    return sentences


def normalized(codec, sentences):
    """Return sentences as the model would write them: lower case where it lowers, its Unicode form, segments joined.

    Unknown words stay as they are: a word that the model cannot write does not make a reference easier.
    """
    texts = codec.target.tokenizer.normalize(tf.constant(sentences)).numpy()
    return [" ".join(text.decode().split()).replace(f"{CONTINUES} ", "") for text in texts]


def quality(hypotheses, references, lowercase):
    """Return BLEU and chrF with sacrebleu's signatures, and the share of sentences that equal their reference."""
    report = {}
    for name, metric in translation_metrics(lowercase).items():
        report[name] = metric.corpus_score(hypotheses, [references]).score
        report[f"{name}_signature"] = str(metric.get_signature())
    report["exact_match"] = float(np.mean([one == other for one, other in zip(hypotheses, references, strict=True)]))
    return report


def translation_metrics(lowercase):
    """Return sacrebleu's metrics of translations; their signatures say whether the model writes lower case."""
    return {
        "bleu": sacrebleu.metrics.BLEU(lowercase=lowercase, force=True, tokenize="13a"),
        "chrf": sacrebleu.metrics.CHRF(lowercase=lowercase),
    }


def likelihood_of(translator, run, part):
    """Return the perplexity of the references, with its kind.

    A continuous alignment that is drawn has the predictive log p: the logarithm of the mean over draws of p(y | draws),
    of the whole sentence where the decoder is fed the drawn context, of each word where the draws of words are
    independent.
    """
    kind, inference, model = MODELS[run.options.model], translator.inference.value, run.models.training

    @tf.function(reduce_retracing=True, autograph=False)
    def drawn(source, target_input, target, seed):
        with keras_vattn.posterior_draws(model, seed=seed):
            value = translator.log_likelihood.python_function(source, target_input, target)
            return tf.reduce_sum(value, axis=1) if kind.feeding == "sampled" else value

    def log_likelihood(inputs, target, number):
        arguments = inputs["source"], inputs["target_input"], target
        if inference.kind != "sample" or not kind.is_continuous:
            return translator.log_likelihood(*arguments)
        values = [drawn(*arguments, tf.constant([number, draw])) for draw in range(inference.count)]
        return tf.reduce_logsumexp(tf.stack(values), axis=0) - np.log(inference.count)

    return {"kind": inference.perplexity} | likelihood_report(log_likelihood, part.training_batches(run.options))


def bound_of(run, part):
    """Return the `bound_report` of a model whose objective is a bound, whatever the inference; empty for others."""
    # For the model relaxed the value at the mean of q is no bound; wake-sleep has the exact value already.
    kind, model = MODELS[run.options.model], run.models.training
    if not (kind.objective or "").startswith("elbo"):
        return {}

    @tf.function(reduce_retracing=True, autograph=False)
    def enumerated(inputs, target):
        words = tf.where(target != PAD, model(inputs, training=False), 0.0)
        return tf.reduce_sum(words, axis=1), tf.math.count_nonzero(target), keras_vattn.divergences(model)

    batches = part.training_batches(run.options)
    return bound_report(lambda inputs, target, _: enumerated(inputs, target), batches)


def alignment_report(translator, codec, part):
    """Return the entropies of the alignments of `Translator.alignments` in nats per word, and with gold links their
    quality.

    Subwords are merged to words: a target word is linked to its most probable source word.
    """
    entropies, predicted, words = {}, {}, None
    pairs, links = part.pairs, part.pairs.links
    if links is not None:
        words = codec.source.words_of_pieces(pairs.sources), codec.target.words_of_pieces(pairs.targets)
    for rows in progress([range(i, min(i + BATCH, len(pairs))) for i in range(0, len(pairs), BATCH)], "alignments"):
        sources, targets = ([side[row] for row in rows] for side in (part.sources, part.targets))
        for name, weights in align(translator, sources, targets).items():
            for row, matrix in zip(rows, weights, strict=True):
                entropies.setdefault(name, []).append(alignments.entropy(matrix))
                if links is not None:
                    # Without the end of the sentence, and as many pieces as were not cut.
                    num_pieces = len(part.sources[row]), len(part.targets[row])
                    of_source, of_target = (side[row][:n] for side, n in zip(words, num_pieces, strict=True))
                    pieces = matrix[: len(of_target), : len(of_source)]
                    merged = alignments.merge_to_words(pieces, of_source, of_target)
                    predicted.setdefault(name, []).append(alignments.links_of(merged))
    report = {f"{name}_entropy": float(np.concatenate(rows).mean()) for name, rows in entropies.items()}
    for name, rows in predicted.items():
        report[name] = alignments.alignment_scores(rows, links)._asdict()
        for measure in ("f1", "aer"):
            report[name][f"{measure}_interval"] = list(alignments.bootstrap_interval(rows, links, measure)[1:])
    return report


def align(translator, sources, targets):
    """Return the alignments of pairs of id lists: a dictionary of lists of (T, S) arrays, T with the end."""
    weights = translator.alignments(*map(tf.constant, teacher_forced(sources, targets)))
    shapes = [(len(target) + 1, max(len(source), 1)) for source, target in zip(sources, targets, strict=True)]
    return {
        name: [matrix[:rows, :columns] for matrix, (rows, columns) in zip(x.numpy(), shapes, strict=True)]
        for name, x in weights.items()
    }


def k_curve_report(translator, run, part, maximum):
    """Return log p per word in nats for K = 1 ... maximum, renormalised as K-max does, and not."""
    sums, tokens = {"renormalised": 0.0, "plain": 0.0}, 0
    for inputs, target in progress(part.training_batches(run.options), "K curve"):
        joint, prior = translator.k_curve(inputs["source"], inputs["target_input"], target)
        counted = target.numpy() != PAD
        joint, prior = joint.numpy()[counted], prior.numpy()[counted]
        tokens += len(joint)
        # A short source has no more than its own alignments.
        columns = np.minimum(np.arange(maximum), joint.shape[1] - 1)
        sums["renormalised"] += (joint - prior)[:, columns].sum(axis=0, dtype="float64")
        sums["plain"] += joint[:, columns].sum(axis=0, dtype="float64")
    return {"k": list(range(1, maximum + 1))} | {name: list(x / tokens) for name, x in sums.items()}
