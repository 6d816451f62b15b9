"""Report the quality and the diversity of generated sentences, and print the tables of Bahuleyan et al. 2018."""

import functools

import numpy as np
import tensorflow as tf

import keras_vattn
from applications.common.attention_pictures import draw_alignments
from applications.common.bounds import bound_report
from applications.common.papers import with_paper
from applications.common.progress import progress
from applications.common.shown import Alignment, Shown, random_rows, verdict
from applications.common.significance import mean_with_error
from applications.common.tables import Column
from applications.text.batching import has_other, other_sentence
from applications.text.metrics import bleu_table, distinct, group_references, self_bleu, unigram_entropy
from applications.text.pairs import is_built_in, write_samples
from applications.text.perplexity import likelihood_report
from applications.ved.decode import Generator, write
from applications.ved.model import MODELS

# Number of attention maps in the report. alignment.png shows every second map.
NUM_ALIGNMENTS = 8
FIGURES = {f"bleu_{order}": f"BLEU-{order}" for order in range(1, 5)}
FIGURES |= {"entropy": "entropy (nats)", "dist_1": "Dist-1", "dist_2": "Dist-2"}
PAPER_TABLES = {1: ("entropy",), 2: tuple(FIGURES), 4: ("bleu_2", "entropy", "dist_1", "dist_2")}
# Metrics in Figures 4 and 5 of Bahuleyan et al. 2018.
CURVES = {
    "val_bleu_2": "BLEU-2, draws",
    "val_bleu_4": "BLEU-4, draws",
    "val_map_bleu_4": "BLEU-4, MAP",
    "val_entropy": "entropy (nats)",
    "val_dist_1": "Dist-1",
}


def _digits(name):
    return 2 if name.startswith("bleu") else 3


COLUMNS = (
    Column("BLEU-4, MAP", "report.map.bleu_4", 2),
    *(
        Column(f"{title.removesuffix(' (nats)')}, draws", f"report.sampling.{name}", _digits(name))
        for name, title in FIGURES.items()
    ),
    Column("PPL (plug-in)", "report.likelihood.perplexity", logarithm=True),
    Column("PPL (ELBO)", "report.likelihood.elbo_perplexity", logarithm=True),
    Column("KL of z (nats)", "report.likelihood.kl.latent_kl"),
    Column("KL of attention (nats)", "report.likelihood.kl.attention_kl"),
    Column("active units of z", "report.likelihood.active_units", 0),
    Column("other z (nats)", "report.controls.z.nats", differs=False),
    Column("other attended (nats)", "report.controls.attended.nats", differs=False),
    Column("other source (nats)", "report.controls.source.nats", differs=False),
)


def quality(hypotheses, references, lowercase):
    """Return the corpus BLEU-1 to BLEU-4 of one hypothesis per source, and sacrebleu's signature."""
    table = bleu_table(hypotheses, references, lowercase)
    return {f"bleu_{order}": result.score for order, result in table.items()} | {"bleu_signature": table[4].signature}


def diversity(draws, references, lowercase):
    """Return mean BLEU, entropy in nats, Dist-n and self-BLEU of samples (Table 2 of Bahuleyan et al. 2018)."""
    drawn = progress(list(zip(*draws, strict=True)), "BLEU of the draws")
    by_draw = [quality(hypotheses, references, lowercase) for hypotheses in drawn]
    report = {name: float(np.mean([row[name] for row in by_draw])) for name in by_draw[0] if name != "bleu_signature"}
    report |= {"entropy": unigram_entropy(draws), "dist_1": distinct(draws, 1), "dist_2": distinct(draws, 2)}
    report |= {f"dist_{n}_published": distinct(draws, n, published=True) for n in (1, 2)}
    report["self_bleu"] = self_bleu(draws) if len(draws[0]) > 1 else None
    valid = [len(set(sentences) & set(answers)) for sentences, answers in zip(draws, references, strict=True)]
    report["distinct_references_among_draws"] = float(np.mean(valid))
    report["distinct_draws"] = float(np.mean([len(set(sentences)) for sentences in draws]))
    return report


def evaluate(run, part, evaluation=None):
    """Return the report on a split, and a dictionary with sources, references and decoded sentences."""
    options, generator, draws = run.options, Generator(run), None
    ids, sources, references = decoded_sources(run, part, options.text.max_test_sources if evaluation is None else None)
    greedy = write(generator, ids, title="decoding")
    report = {"num_sources": len(sources), "map": quality(greedy, references, options.text.lowercase)}
    if MODELS[options.model].latent:
        count = options.reports.num_draws
        draws = write(generator, ids, count, 1, f"{count} draws")
        report["sampling"] = diversity(draws, references, options.text.lowercase)
    is_judged = is_built_in(options.text, evaluation)
    if is_judged:
        report["judged"] = judged(greedy, draws, references)
    report["likelihood"] = likelihood_of(run, part, generator)
    report["controls"] = controls(run, part)
    texts = {"sources": sources, "references": references, "greedy": greedy, "draws": draws}
    return report, texts | {"is_built_in": is_judged}


def judged(greedy, draws, references):
    """Count the correct questions in `greedy` ("map") and in the samples `draws` ("draws").

    `draws` may be `None`. "different" is the mean number of distinct correct samples per source.
    """
    report = {"map": sum(not fault_of(*row) for row in zip(greedy, references, strict=True))}
    if draws is not None:
        right = [
            [x for x in questions if not fault_of(x, answers)]
            for questions, answers in zip(draws, references, strict=True)
        ]
        report |= {"draws": sum(map(len, right)), "num_draws": sum(map(len, draws))}
        report["different"] = float(np.mean([len(set(questions)) for questions in right]))
    return report


def fault_of(question, references):
    """Return the missing and wrong words of a question as a string, or "" if the question is correct."""
    # A correct question has all words that the references share, and only words of the references.
    words, reference_words = set(question.split()), [set(text.split()) for text in references]
    groups = {"lacks": set.intersection(*reference_words) - words, "has": words - set.union(*reference_words)}
    return ", ".join(f"{verb} {' and '.join(sorted(group))}" for verb, group in groups.items() if group)


def summary(report):
    """Return sentences about the quality of the output, and about the use of z and the attention."""
    count, controls, judged = report["num_sources"], report["controls"], report.get("judged")
    if judged is None:
        sentences = [f"BLEU-4 of {report['map']['bleu_4']:.1f} without sampling, on {count:,} sources."]
    else:
        sentences = [f"{judged['map']:,} of {count:,} questions decoded without sampling are correct."]
        if "draws" in judged:
            drawn = f"{judged['draws']:,} of {judged['num_draws']:,} sampled questions are correct"
            sentences.append(f"{drawn}; a statement has {judged['different']:.1f} distinct correct samples on average.")
    for name, label in (("z", "z"), ("attended", "attention")):
        if name in controls:
            drop = f"{controls[name]['nats']:.2f} nats per sentence"
            sentences.append(f"With another sentence's {label}, log p drops by {drop}.")
    return sentences


def decoded_sources(run, part, maximum=None):
    """Return the ids and texts of the distinct sources, and a list of tokenised references for each."""
    codec, pairs = run.codec, part.pairs
    targets = [" ".join(tokens) for tokens in codec.target.tokenizer.token_lists(pairs.targets)]
    references = group_references(pairs.sources, targets)
    sources = list(references)[:maximum]
    ids, _ = codec.source.encode_numpy(sources, run.options.text.max_source_length)
    return ids, sources, [references[source] for source in sources]


def likelihood_of(run, part, generator):
    """Return the plug-in perplexity. With z, add the number of active units and a one-sample ELBO."""
    models = run.models
    batches = part.batches(run.options.fit.batch_size, run.options.run.seed)
    report = likelihood_report(
        lambda inputs, target, _: generator.log_likelihood(inputs["source"], inputs["target_input"], target), batches
    )
    if not MODELS[run.options.model].latent:
        return report
    means = [models.encoder(inputs["source"])["z"] for inputs, _ in batches]
    report["active_units"] = keras_vattn.metrics.active_units(np.concatenate(means))

    @tf.function(reduce_retracing=True, autograph=False)
    def draw_bound(inputs, target, seed):
        with keras_vattn.posterior_draws(models.training, seed=seed):
            encoded = models.encoder(inputs["source"])
            value = models.log_likelihood(inputs["target_input"], target, encoded, inputs["source"])
        return value, tf.math.count_nonzero(target), keras_vattn.divergences(models.training)

    return report | bound_report(lambda *batch: draw_bound(*batch[:2], tf.constant(batch[2])), batches)


def controls(run, part):
    """Return the drop of log p(target) if z, the memory or the source is from another sentence.

    Each drop is a mean with a standard error, in nats per sentence. z and the attention are at their posterior means. A
    drop of 0 shows that the decoder ignores the input, or that the input is the same for all sentences.
    """
    models, kind = run.models, MODELS[run.options.model]
    swapped = {"z": {"z"} & models.encoder.output.keys(), "source": models.encoder.output.keys()}
    if kind.attention is not None:
        swapped["attended"] = {"memory"}

    @tf.function(reduce_retracing=True, autograph=False)
    def losses(inputs, target):
        source, encoded = inputs["source"], models.encoder(inputs["source"])

        def log_p(names):
            mixed = {name: other_sentence(x) if name in names else x for name, x in encoded.items()}
            words = other_sentence(source) if "memory" in names else source
            return models.log_likelihood(inputs["target_input"], target, mixed, words)

        log_likelihood, is_counted = log_p(()), has_other(source)
        return {name: (log_likelihood - log_p(names))[is_counted] for name, names in swapped.items() if names}

    batch_losses = [losses(*batch) for batch in part.batches(run.options.fit.batch_size, run.options.run.seed)]
    nats = {name: np.concatenate([x[name] for x in batch_losses]) for name in batch_losses[0]}
    return {name: mean_with_error(x) for name, x in nats.items() if len(x) > 1}


def files(outputs):
    return {"generated": outputs["greedy"]}


def heading(record):
    report = record["report"]
    return f"{report['num_sources']} {record['split']} sources; {report['map']['bleu_signature']}"


def example_of(part):
    return part.pairs.sources[0]


def shown(run, part, outputs):
    samples = []
    for index, source in enumerate(outputs["sources"]):
        row = [("source", source), *(("reference", text) for text in outputs["references"][index])]
        draws = outputs["draws"][index][:3] if outputs["draws"] else ()
        written = [("MAP", outputs["greedy"][index]), *(("draw", text) for text in draws)]
        samples.append([*row, *written])
        if outputs["is_built_in"]:
            faults = [(label, fault_of(text, outputs["references"][index])) for label, text in written]
            samples[-1].append(verdict("; ".join(f"{label} {fault}" for label, fault in faults if fault)))
    return Shown(samples, _alignments(run, outputs["sources"]))


def report(run, part, record, outputs, shown):
    if shown.alignments:
        draw_alignments({"": shown.alignments[::2]}, run.folder.file("alignment.png"))
    lines = write_samples(run.folder.file("samples.txt"), shown.samples)
    if not outputs["draws"]:
        return lines
    sampling, count = record["report"]["sampling"], run.options.reports.num_draws
    sentence = f"{count} draws per source: {sampling['distinct_draws']:.2f} are distinct, "
    sentence += f"{sampling['distinct_references_among_draws']:.2f} match a distinct reference"
    sentence += "" if sampling["self_bleu"] is None else f"; self-BLEU {sampling['self_bleu']:.1f}"
    return [sentence, "", *lines]


def _alignments(run, sources):
    if MODELS[run.options.model].attention is None:
        return []
    sources = [sources[index] for index in random_rows(len(sources), NUM_ALIGNMENTS)]
    generator, length = Generator(run), run.options.text.max_source_length
    decoded = generator.greedy(run.codec.source.encode(tf.constant(sources), length))
    tokens, weights = run.codec.target.tokens(decoded["ids"]).numpy(), np.asarray(decoded["weights"], "float32")
    alignments = []
    for row, words in enumerate(run.codec.source.tokenizer.token_lists(sources)):
        words, count = words[:length], int(decoded["lengths"][row])
        target = [token.decode() for token in tokens[row, :count]]
        alignments.append(Alignment(sources[row], target, {"": weights[row, :count, : len(words)]}, source=words))
    return alignments


def paper_table(number, comparison):
    """Return two tables, for greedy decoding and for samples, with our and the published results."""
    tables = []
    for inference in ("map", "sampling"):
        columns = [Column(FIGURES[name], f"report.{inference}.{name}", _digits(name)) for name in PAPER_TABLES[number]]
        records = {
            name: runs
            for name, runs in comparison.records.items()
            if any(x.value(runs[0]) is not None for x in columns)
        }
        if records:
            title = f"Table {number} of Bahuleyan et al. 2018, {inference}"
            tables.append(with_paper(title, f"bahuleyan_{number}_{inference}", columns, records))
    return tables


LAYOUTS = {f"table_{number}": functools.partial(paper_table, number) for number in PAPER_TABLES}
