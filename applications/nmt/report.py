"""Report perplexity, BLEU, chrF, alignments and pictures of a trained translation model."""

import functools

import numpy as np
import sacrebleu.metrics
import tensorflow as tf

import keras_vattn
from applications.common.attention_pictures import draw_alignments
from applications.common.bounds import bound_report
from applications.common.progress import progress
from applications.common.serving import mean_of_draws
from applications.common.shown import Alignment, Shown, evenly, random_rows, verdict
from applications.common.significance import corpus_score, mean_with_error
from applications.common.tables import out_of
from applications.nmt import alignments, tables
from applications.nmt.decode import BATCH, Translator, translate, translate_with_uncertainty
from applications.nmt.model import MODELS
from applications.text.batching import has_other, other_sentence, teacher_forced
from applications.text.coverage import compared_coverage, coverage_lines, coverage_report
from applications.text.pairs import is_built_in, write_samples
from applications.text.perplexity import likelihood_report
from applications.text.text import PAD
from applications.text.uncertainty import words_with_nats

# Number of alignments in the report, and number of these in alignments.png.
NUM_ALIGNMENTS, NUM_PICTURES = 9, 3
KINDS = ("prior", "mean", "posterior", "exact")
CURVES = {"val_perplexity": "perplexity of the bound, validation", "val_bleu": "BLEU, validation, greedy"}
COLUMNS = tables.COLUMNS
LAYOUTS = {"deng": tables.deng, "fan": tables.fan}
LAYOUTS["uncertainty"] = functools.partial(compared_coverage, metrics=tables.QUALITY)


def evaluate(run, part, evaluation=None):
    """Return the report on a split, and a dictionary with the sentences."""
    name = (evaluation and evaluation.inference) or MODELS[run.options.model].inference
    translator = Translator(run, name, draws=evaluation is None or evaluation.num_draws != 0)
    references = normalized(run.codec, part.pairs.targets)
    report = {"num_sentences": len(part.pairs), "inference": name}
    report["likelihood"] = likelihood_of(translator, run, part) | bound_of(run, part)
    report["controls"] = controls(translator, run, part)
    report["alignment"] = alignment_report(translator, run.codec, part)
    hypotheses = translate(translator, run.codec, part.sources)
    report["translation"] = quality(hypotheses, references, run.options.text.lowercase)
    outputs = {"sources": part.pairs.sources, "references": references, "hypotheses": hypotheses}
    outputs["is_built_in"] = is_built_in(run.options.text, evaluation)
    if evaluation is not None and evaluation.uncertainty:
        outputs["sentences"] = translate_with_uncertainty(translator, part.sources, evaluation.num_draws)
        report["uncertainty"] = uncertainty_report(outputs["sentences"], run, references)
        print(*coverage_lines({run.options.model: [report["uncertainty"]]}, tables.QUALITY), "", sep="\n\n")
    return report, outputs


def files(outputs):
    return {name: outputs[name] for name in ("hypotheses", "references")}


def heading(record):
    translation = record["report"]["translation"]
    return (
        f"{record['report']['num_sentences']} {record['split']} sentences, inference "
        f"{record['report']['inference']}; {translation['bleu_signature']}; {translation['chrf_signature']}"
    )


def example_of(part):
    return part.pairs.sources[0]


def summary(report):
    translation, alignment = report["translation"], report["alignment"]
    equal = out_of(translation["exact_match"], report["num_sentences"])
    lines = [f"{equal} translations equal their reference; BLEU {translation['bleu']:.1f}."]
    rates = [f"{alignment[kind]['aer']:.3f} ({kind})" for kind in KINDS if kind in alignment]
    lines += [f"Alignment error rate on gold links: {', '.join(rates)}."] if rates else []
    for control in report["controls"].values():
        lines.append(f"With another sentence's source, log p drops by {control['nats']:.1f} nats per sentence.")
    return lines


def shown(run, part, outputs):
    samples, columns = [], [outputs[name] for name in ("sources", "references", "hypotheses")]
    marked = map(words_with_nats, outputs["sentences"]) if "sentences" in outputs else outputs["hypotheses"]
    for source, reference, text, words in zip(*columns, marked, strict=True):
        samples.append([("source", source), ("reference", reference), ("translation", words)])
        # Other texts may have several right translations.
        if outputs["is_built_in"]:
            samples[-1].append(verdict("" if text == reference else "differs from the reference"))
    return Shown(samples, attention(run, part))


def report(run, part, record, outputs, shown):
    draw_alignments({run.options.model: _pictured(shown)}, run.folder.file("alignments.png"))
    return write_samples(run.folder.file("samples.txt"), shown.samples)


def compared(comparison):
    """Draw alignments.png, which shows the alignments of all models side by side."""
    pictured = {name: _pictured(shown) for name, shown in comparison.shown().items()}
    if all(pictured.values()):
        draw_alignments(pictured, comparison.folder / "alignments.png")
    return []


def normalized(codec, sentences):
    """Return sentences converted to the case and Unicode form of the model's outputs.

    Words outside the vocabulary stay. A model that cannot generate these words scores lower.
    """
    texts = codec.target.tokenizer.normalize(tf.constant(sentences)).numpy()
    return [" ".join(text.decode().split()) for text in texts]


def quality(hypotheses, references, lowercase):
    """Return BLEU and chrF, sacrebleu's signatures, and the fraction of exact matches."""
    report = {}
    for name, metric in translation_metrics(lowercase).items():
        report[name] = metric.corpus_score(hypotheses, [references]).score
        report[f"{name}_signature"] = str(metric.get_signature())
    report["exact_match"] = float(
        np.mean([hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True)])
    )
    return report


def translation_metrics(lowercase):
    """Return sacrebleu's BLEU and chrF. With `lowercase`, both ignore case."""
    return {
        "bleu": sacrebleu.metrics.BLEU(lowercase=lowercase, force=True, tokenize="13a"),
        "chrf": sacrebleu.metrics.CHRF(lowercase=lowercase),
    }


def uncertainty_report(sentences, run, references):
    """Return the `coverage_report` of sentences from `translate_with_uncertainty`, for BLEU and chrF."""
    hypotheses = [sentence["text"] for sentence in sentences]
    metrics = translation_metrics(run.options.text.lowercase)
    scores = {name: corpus_score(metric, hypotheses, references) for name, metric in metrics.items()}
    kind = "attention" if MODELS[run.options.model].is_continuous else "dropout"
    return coverage_report(sentences, scores, kind if "mutual_information" in sentences[0] else None)


def likelihood_of(translator, run, part):
    """Return the `likelihood_report` of the references, and its "kind", for instance "plug-in".

    If continuous alignments are sampled, the probability of a word is the mean over the samples.
    """
    kind, inference, model = MODELS[run.options.model], translator.inference.value, run.models.training
    predictive = mean_of_draws(model, translator.log_likelihood.python_function, inference.count or 0)

    def log_likelihood(inputs, target, number):
        arguments = inputs["source"], inputs["target_input"], target
        if inference.kind != "sample" or not kind.is_continuous:
            return translator.log_likelihood(*arguments)
        return predictive(number, *arguments)

    return {"kind": inference.perplexity} | likelihood_report(log_likelihood, part.training_batches(run.options))


def bound_of(run, part):
    """Return the `bound_report` if the model trains on an ELBO over source positions, otherwise {}."""
    kind, model = MODELS[run.options.model], run.models.training
    if not (kind.objective or "").startswith("elbo"):
        return {}

    @tf.function(reduce_retracing=True, autograph=False)
    def enumerated_bound(inputs, target):
        words = tf.where(target != PAD, model(inputs, training=False), 0.0)
        return tf.reduce_sum(words, axis=1), tf.math.count_nonzero(target), keras_vattn.divergences(model)

    batches = part.training_batches(run.options)
    return bound_report(lambda inputs, target, _: enumerated_bound(inputs, target), batches)


def controls(translator, run, part):
    """Return the drop in log p if another sentence replaces the source.

    The drop is a mean with a standard error, in nats per sentence. A drop of 0 shows that the
    attention has no effect, because the decoder reads the source only through the attention.
    """
    costs = []
    for inputs, target in progress(part.training_batches(run.options), "another source"):
        log_p, rolled_log_p = (
            tf.reduce_sum(translator.log_likelihood(source, inputs["target_input"], target), axis=1)
            for source in (inputs["source"], other_sentence(inputs["source"]))
        )
        costs.extend((log_p - rolled_log_p)[has_other(inputs["source"])].numpy())
    return {"source": mean_with_error(costs)} if len(costs) > 1 else {}


def alignment_report(translator, codec, part):
    """Return the mean entropy of each alignment in `Translator.alignments`, in nats per token.

    With gold links, also return scores of the predicted links. A predicted link connects a target word to its most
    probable source word.
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
                    # Drop pieces that truncation removed, and the row of the end token.
                    source_words = words[0][row][: len(part.sources[row])]
                    target_words = words[1][row][: len(part.targets[row])]
                    pieces = matrix[: len(target_words), : len(source_words)]
                    merged = alignments.merge_to_words(pieces, source_words, target_words)
                    predicted.setdefault(name, []).append(alignments.links_of(merged))
    report = {f"{name}_entropy": float(np.concatenate(rows).mean()) for name, rows in entropies.items()}
    return report | {name: alignments.alignment_scores(rows, links)._asdict() for name, rows in predicted.items()}


def align(translator, sources, targets):
    """Return `Translator.alignments` of encoded sentence pairs, as lists of unpadded arrays (T, S)."""
    pairs = map(tf.constant, teacher_forced(sources, targets))
    shapes = [(len(target) + 1, max(len(source), 1)) for source, target in zip(sources, targets, strict=True)]
    return {
        name: [matrix[:rows, :columns] for matrix, (rows, columns) in zip(x.numpy(), shapes, strict=True)]
        for name, x in translator.alignments(*pairs).items()
    }


def attention(run, part):
    """Return an `Alignment` for each of a few random pairs, as in Figures 3 and 4 of Deng et al. 2018."""
    chosen = random_rows(len(part.pairs), NUM_ALIGNMENTS)
    sources, targets = ([side[row] for row in chosen] for side in (part.sources, part.targets))
    weights = align(Translator(run), sources, targets)
    return [
        Alignment(
            part.pairs.sources[chosen[index]],
            [*run.codec.target.pieces(target), "<end>"],
            {name: matrices[index] for name, matrices in weights.items()},
            source=run.codec.source.pieces(source) or [""],
        )
        for index, (source, target) in enumerate(zip(sources, targets, strict=True))
    ]


def _pictured(shown):
    return [shown.alignments[row] for row in evenly(len(shown.alignments), NUM_PICTURES)]
