"""Reports of a trained translation model: perplexities with their kind, BLEU and chrF, alignments, pictures."""

import dataclasses

import numpy as np
import sacrebleu.metrics
import tensorflow as tf
from scipy.special import softmax

import keras_vattn
from applications.common.attention_pictures import draw_alignments
from applications.common.bounds import bound_report
from applications.common.progress import progress
from applications.common.serving import mean_of_draws
from applications.common.shown import Alignment, Shown, evenly, random_rows, verdict
from applications.common.significance import NUM_RESAMPLES, compare_translations, corpus_score, mean_with_error
from applications.common.tables import figures_of, interval_text, out_of, table, titled
from applications.nmt import alignments, tables
from applications.nmt.options import MODELS
from applications.nmt.serve import BATCH, Translator, translate, translate_surely
from applications.nmt.subwords import CONTINUES
from applications.nmt.tables import COLUMNS
from applications.text.batching import has_other, other_sentence, teacher_forced
from applications.text.coverage import coverage_lines, coverage_report
from applications.text.pairs import is_built_in, write_samples
from applications.text.perplexity import likelihood_report
from applications.text.text import PAD
from applications.text.uncertainty import words_with_nats

# Pairs whose alignments are shown, and pairs of these in the picture.
NUM_ALIGNMENTS, NUM_PICTURES = 9, 3
# Draws of weights behind their standard deviation, and the seed.
NUM_DRAWS, SEED = 16, 0
# Alignments in the order of their lines.
KINDS = ("prior", "mean", "posterior", "exact")
CURVES = {"val_perplexity": "perplexity of the bound, validation", "val_bleu": "BLEU, validation, greedy"}
LAYOUTS = {"deng": tables.deng, "fan": tables.fan, "uncertainty": tables.uncertainty}


def evaluate(run, part, evaluation=None):
    """Return the report on an `EncodedText`, under each of several inferences, and the sentences behind it."""
    names = () if evaluation is None else evaluation.inference
    names, references = names or (MODELS[run.options.model].inference,), normalized(run.codec, part.pairs.targets)
    reports, hypotheses, unsure, bound = {}, {}, {}, bound_of(run, part)
    for name in names:
        translator = Translator(run, name)
        report = {"num_sentences": len(part.pairs), "inference": name}
        report["likelihood"] = likelihood_of(translator, run, part) | bound
        report["controls"] = controls(translator, run, part)
        report["alignment"] = alignment_report(translator, run.codec, part)
        hypotheses[name] = translate(translator, run.codec, part.sources)
        report["translation"] = quality(hypotheses[name], references, run.options.text.lowercase)
        if evaluation is not None and evaluation.uncertainty:
            sentences = translate_surely(translator, part.sources, evaluation.num_draws)
            unsure.setdefault("sentences", sentences)
            report["uncertainty"] = uncertainty_report(sentences, run, references)
        reports[name] = report
        if len(names) > 1:
            print(f"{name}\n{figures_of(COLUMNS, {'report': report})}\n", flush=True)
        if "uncertainty" in report:
            print(*coverage_lines({run.options.model: [report["uncertainty"]]}, tables.QUALITY), "", sep="\n\n")
    outputs = {"sources": part.pairs.sources, "references": references, "hypotheses": hypotheses} | unsure
    outputs["is_built_in"] = is_built_in(run.options.text, evaluation)
    if evaluation is None:
        return reports[names[0]], outputs
    report = reports[names[0]] | {"inferences": reports}
    if evaluation.k_curve:
        report["k_curve"] = k_curve_report(Translator(run), run, part, evaluation.k_curve)
    return report, outputs


def files(outputs):
    first, *others = outputs["hypotheses"]
    named = {f"hypotheses_{name.replace(':', '_')}": outputs["hypotheses"][name] for name in others}
    return {"hypotheses": outputs["hypotheses"][first], "references": outputs["references"]} | named


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
        lines.append(f"Attending to another sentence's source costs {control['nats']:.1f} nats a sentence.")
    return lines


def shown(run, part, outputs):
    hypotheses = texts = files(outputs)["hypotheses"]
    if "sentences" in outputs:
        hypotheses = [words_with_nats(sentence) for sentence in outputs["sentences"]]
    labels = ("source", "reference", "translation")
    columns = zip(outputs["sources"], outputs["references"], hypotheses, strict=True)
    samples = [list(zip(labels, row, strict=True)) for row in columns]
    # The built-in text has one right translation; other text has several.
    if outputs["is_built_in"]:
        for sample, text, reference in zip(samples, texts, outputs["references"], strict=True):
            sample.append(verdict("" if text == reference else "differs from the reference"))
    return Shown(samples, attention(run, part))


def report(run, part, record, outputs, shown):
    draw_alignments({run.options.model: _pictured(shown)}, run.folder.file("alignments.png"))
    samples = write_samples(run.folder.file("samples.txt"), shown.samples)
    return [*alignment_lines(record["report"]["alignment"]), "", *samples]


def compared(comparison):
    """Draw the models' alignments side by side; return differences over sentences, and the crossing of inferences."""
    options = comparison.options
    known = {name: _pictured(shown, ("exact",)) for name, shown in comparison.shown().items()}
    if all(known.values()):
        draw_alignments(known, comparison.folder / "alignments.png")
    parts = [over_sentences(comparison)] if options.baseline in known and len(known) > 1 else []
    return parts + (tables.crossing(comparison) if options.inference else [])


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


def uncertainty_report(sentences, run, references):
    """Return the `coverage_report` of results of `translate_surely`, in BLEU and chrF."""
    hypotheses = [sentence["text"] for sentence in sentences]
    metrics = translation_metrics(run.options.text.lowercase)
    scores = {name: corpus_score(metric, hypotheses, references) for name, metric in metrics.items()}
    kind = "attention" if MODELS[run.options.model].is_continuous else "dropout"
    return coverage_report(sentences, scores, kind if "mutual_information" in sentences[0] else None)


def likelihood_of(translator, run, part):
    """Return the perplexity of the references, with its kind.

    A continuous alignment that is drawn has the predictive log p: of each word the logarithm of the mean over draws.
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


def controls(translator, run, part):
    """Return the nats a sentence that its log-likelihood loses if the source is another sentence's: mean and standard
    error. The decoder has all that it knows of the source from what it attends to; where that costs nothing, the
    attention is bypassed."""
    costs = []
    for inputs, target in progress(part.training_batches(run.options), "another source"):
        own, other = (
            tf.reduce_sum(translator.log_likelihood(source, inputs["target_input"], target), axis=1)
            for source in (inputs["source"], other_sentence(inputs["source"]))
        )
        costs.extend((own - other)[has_other(inputs["source"])].numpy())
    return {"source": mean_with_error(costs)} if len(costs) > 1 else {}


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


def align(translator, sources, targets, draw=None):
    """Return the alignments of pairs of id lists: a dictionary of lists of (T, S) arrays, T with the end; "drawn"
    alone, weights of the draw of that number, where one is asked for."""
    pairs = tuple(map(tf.constant, teacher_forced(sources, targets)))
    if draw is None:
        weights = translator.alignments(*pairs)
    else:
        weights = {"drawn": translator.drawn_weights(*pairs, tf.constant([SEED, draw]))}
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


def over_sentences(comparison):
    """Return the table of paired differences of each seed when the sentences are drawn again.

    A model with other references than the baseline's has no pairs; a sentence names such models.
    """
    baseline, lines, apart = comparison.options.baseline, [], []
    hypotheses, references = (
        comparison.of_models(lambda run, name=name: comparison.lines(run, name))
        for name in ("hypotheses", "references")
    )
    for name, of_seeds in hypotheses.items():
        if references[name] != references[baseline]:
            apart.append(name)
            continue
        for index, sentences in enumerate(of_seeds if name != baseline else ()):
            cells = []
            # The files have the case in which sentences are compared.
            for metric in translation_metrics(lowercase=False).values():
                value, low, high, p = compare_translations(
                    metric, sentences, hypotheses[baseline][index], references[baseline][index]
                )
                cells += [interval_text((value, low, high), 2), f"{p:.3f}"]
            lines.append((name, comparison.options.first_seed + index, *cells))
    title = f"Paired bootstrap over sentences against {baseline}, {NUM_RESAMPLES} resamples, p two-sided"
    parts = [titled(title, table(("model", "seed", "BLEU", "p of BLEU", "chrF", "p of chrF"), lines))] if lines else []
    if apart:
        parts.append(f"Not compared with {baseline}, whose reference sentences are others: {', '.join(apart)}.")
    return "\n\n".join(parts)


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


def attention(run, part):
    """Return some pairs of a part with their alignments (Figures 3 and 4: prior, posteriors)."""
    chosen, kind = random_rows(len(part.pairs), NUM_ALIGNMENTS), MODELS[run.options.model]
    sources, targets = ([side[row] for row in chosen] for side in (part.sources, part.targets))
    translator, spread = Translator(run), {}
    weights = align(translator, sources, targets)
    if kind.is_continuous:
        draws = [align(translator, sources, targets, draw)["drawn"] for draw in range(NUM_DRAWS)]
        # What is drawn without q is around p.
        name = next(iter(weights))
        spread[name] = [np.std(of_pair, axis=0) for of_pair in zip(*draws, strict=True)]
    if kind.is_bayesian and kind.alignment != "gaussian":
        # The prior of BAM is one for all words.
        pairs = map(tf.constant, teacher_forced(sources, targets))
        log_draws = translator.prior_draws(*pairs, NUM_DRAWS, SEED).numpy()
        draws = [softmax(log_draws[:, row, : x.shape[1]], axis=1) for row, x in enumerate(weights[name])]
        of_words = [(len(x), 1) for x in weights[name]]
        means, deviations = ([np.tile(f(x, axis=0), n) for x, n in zip(draws, of_words)] for f in (np.mean, np.std))
        weights, spread = {"prior": means} | weights, {"prior": deviations} | spread
    return [
        Alignment(
            part.pairs.sources[chosen[index]],
            [*run.codec.target.pieces(target), "<end>"],
            {name: matrices[index] for name, matrices in weights.items()},
            {name: matrices[index] for name, matrices in spread.items()},
            source=run.codec.source.pieces(source) or [""],
        )
        for index, (source, target) in enumerate(zip(sources, targets, strict=True))
    ]


def _pictured(shown, left_out=()):
    """Return the alignments that a picture has, without those of some kinds."""
    chosen = [shown.alignments[row] for row in evenly(len(shown.alignments), NUM_PICTURES)]
    keep = lambda weights: {kind: x for kind, x in weights.items() if kind not in left_out}  # noqa: E731
    return [dataclasses.replace(alignment, weights=keep(alignment.weights)) for alignment in chosen]
