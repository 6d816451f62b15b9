"""Report bounds and samples of a trained model, and print tables.

Shapes: N sentences, B sentences in a batch, T words with the end token, Z units of z_enc.
"""

import collections
import itertools

import numpy as np
import tensorflow as tf
from scipy.special import entr, logsumexp

from applications.common.attention_pictures import draw_alignments
from applications.common.bounds import perplexity
from applications.common.option_values import first_value
from applications.common.papers import with_paper
from applications.common.progress import progress
from applications.common.reporting import COLLAPSED_NATS
from applications.common.runs import digest_of
from applications.common.shown import Alignment, Shown, evenly, random_rows, verdict
from applications.common.significance import mean_with_error
from applications.common.tables import Column, main_table, title_from, titled
from applications.text.batching import teacher_forced
from applications.text.pairs import write_samples
from applications.text.text import PAD
from applications.vrae import grammar
from applications.vrae.decode import Writer, interpolated, seed_of_batch, strings
from applications.vrae.documents import read_topics
from applications.vrae.model import MODELS
from applications.vrae.summarize import PARTS, means
from keras_vattn import metrics, random

_LIKELIHOOD = "report.likelihood"
PAPER = (
    Column("NLL (authors' code)", f"{_LIKELIHOOD}.published.nats", 2),
    Column("KL(z_enc)", f"{_LIKELIHOOD}.kl_code", 2),
    Column("PPL (authors' code)", f"{_LIKELIHOOD}.published.perplexity", 2, logarithm=True),
)
OURS = (
    Column("-ELBO (nats)", f"{_LIKELIHOOD}.elbo.nats", 2),
    Column("PPL (ELBO)", f"{_LIKELIHOOD}.elbo.perplexity", 2, logarithm=True),
    Column("PPL (ELBO), sentences of IW", f"{_LIKELIHOOD}.importance_weighted.elbo_perplexity", 2, logarithm=True),
    Column("PPL (IW)", f"{_LIKELIHOOD}.importance_weighted.perplexity", 2, logarithm=True),
    Column("reconstruction (nats)", f"{_LIKELIHOOD}.reconstruction", 2),
    Column("KL of z_t (nats)", f"{_LIKELIHOOD}.kl_steps", 2),
    Column("KL of c~_t (nats)", f"{_LIKELIHOOD}.kl_context", 2),
)
COLUMNS = (
    *PAPER,
    *OURS,
    Column("map moves", "report.map.moves"),
    Column("map entropy (nats)", "report.map.entropy"),
    Column("active units", "report.code.active_units", 1, differs=False),
    Column("I(x; z_enc) (nats)", "report.code.mutual_information", 3),
    Column("other z_enc (nats)", "report.controls.shuffled.nats", 3, differs=False),
    Column("other z_enc, standard error", "report.controls.shuffled.standard_error", 3, differs=False),
    Column("no z_enc (nats)", "report.controls.zero.nats", 3, differs=False),
    Column("no z_enc, standard error", "report.controls.zero.standard_error", 3, differs=False),
    Column("s/step", "step_seconds", differs=False),
    Column("parameters (M)", "parameters.generative", 3, 1e-6, differs=False),
    Column("parameters of q (M)", "parameters.inference", 3, 1e-6, differs=False),
)
CURVES = {
    "perplexity": "perplexity without KL, training",
    "val_perplexity": "perplexity without KL, validation",
    "val_mutual_information": "I(x; z_enc), validation",
}
# Reports show NUM_SAMPLES of the NUM_GENERATED sentences, and NUM_ALIGNMENTS attention maps.
NUM_GENERATED, NUM_SAMPLES, NUM_ALIGNMENTS = 100, 8, 6
# Number of decoded points between two sentences. Equal adjacent results are shown once.
NUM_INTERPOLATED = 65
_SEED = 0


def evaluate(run, part, evaluation=None):
    """Return the report on a split, and a dictionary of generated and reconstructed sentences."""
    reports, kind, writer = run.options.reports, MODELS[run.options.model], Writer(run)
    likelihood = _likelihood(run, part, writer, kind)
    # The first sentences may come from one document, so select sentences from the whole split.
    chosen = part.rows(evenly(len(part), reports.max_bound))
    # Without latent variables, every sample gives the exact log-likelihood.
    num_draws = first_value("num_draws", evaluation, reports) if kind.latent else 1
    likelihood["importance_weighted"] = _importance_weighted(run, chosen, writer, num_draws)
    report = {"num_sentences": len(part), "likelihood": likelihood}
    if kind.latent:
        codes = [writer.posterior(source) for source, _, _ in sentences_of(run, part)]
        mean, log_scale = (np.concatenate([code[name] for code in codes]) for name in ("mean", "log_scale"))
        report["code"] = {
            "active_units": metrics.active_units(mean),
            "mutual_information": metrics.latent_mutual_information(mean, log_scale, seed=_SEED),
            "most_mutual_information": float(np.log(len(part))),
        }
        report["controls"] = _controls(run, chosen, writer)
    if kind.attention and run.options.variational.informed != "none":
        report["map"] = _map(run, part, writer)
    outputs = samples_of(run, part, writer)
    outputs["is_built_in"] = run.options.text.train_text is None and not (evaluation and evaluation.text)
    if outputs["is_built_in"]:
        report["grammar"] = _grammar(outputs)
    return report, outputs


def files(outputs):
    return {"generated": outputs["generated"]}


def heading(record):
    report, bound = record["report"], record["report"]["likelihood"]["importance_weighted"]
    draws = f"IW: {bound['num_draws']} draws, {bound['num_sentences']} sentences"
    return f"{report['num_sentences']} {record['split']} sentences; {draws}"


def example_of(part):
    return ""


def summary(report):
    """Return sentences about the quality of the model, and about the use of the latent variables."""
    lines, counts, controls = [], report.get("grammar"), report.get("controls")
    if counts is None:
        bound = report["likelihood"]["importance_weighted"]
        lines.append(f"The perplexity of {bound['num_sentences']} sentences is at most {bound['perplexity']:.1f}.")
    else:
        lines.append(f"{counts['num_grammatical']} of {counts['num_generated']} generated sentences are grammatical.")
        if counts["num_rebuilt"]:
            lines.append(f"{counts['num_same']} of {counts['num_rebuilt']} rebuilt sentences keep their meaning.")
    if controls is not None:
        drop = f"{controls['shuffled']['nats']:.1f} nats per sentence"
        lines.append(f"With another sentence's z_enc, log p drops by {drop}.")
    steps = report["likelihood"].get("kl_steps")
    if steps is not None and steps < COLLAPSED_NATS:
        lines.append(f"z_t is unused: its KL is {steps:.2f} nats per sentence, and the words depend only on z_enc.")
    return lines


def shown(run, part, outputs):
    rows = [[("generated", text)] for text in outputs["generated"][:NUM_SAMPLES]]
    rebuilt = outputs["reconstructed"]
    rows += [list(zip(("sentence", "rebuilt"), rebuilt[row])) for row in random_rows(len(rebuilt), NUM_SAMPLES)]
    if outputs["interpolated"]:
        rows.append([("between", text) for text in outputs["interpolated"]])
    if outputs["is_built_in"]:
        rows = [[*row, verdict(fault_of(row))] for row in rows]
    return Shown(rows, attention(run, part))


def fault_of(sample):
    """Return the error in a sample, or "". A reconstruction must have the same words in each slot."""
    slots = [grammar.parse(text) for _, text in sample]
    if None in slots:
        return "not grammatical"
    if sample[0][0] == "sentence" and slots[0] != slots[1]:
        return ", ".join(name for name, words in slots[0].items() if slots[1][name] != words)
    return ""


def _grammar(outputs):
    """Count the grammatical sentences, and the reconstructions that equal their source sentence."""
    rebuilt = [tuple(map(grammar.parse, pair)) for pair in outputs["reconstructed"]]
    return {
        "num_generated": len(outputs["generated"]),
        "num_grammatical": sum(grammar.parse(text) is not None for text in outputs["generated"]),
        "num_rebuilt": len(rebuilt),
        "num_same": sum(source is not None and source == target for source, target in rebuilt),
    }


def report(run, part, record, outputs, shown):
    if shown.alignments:
        draw_alignments({"": shown.alignments[:: len(shown.alignments) - 1 or 1]}, run.folder.file("attention.png"))
    return write_samples(run.folder.file("samples.txt"), shown.samples)


def sentences_of(run, part):
    """Return a list with (source, target_input, target) for each batch of a split."""
    return [(inputs["source"], inputs["target_input"], target) for inputs, target in part.training_batches(run.options)]


def _likelihood(run, part, writer, kind):
    """Return negative log-likelihoods, KLs and the negative ELBO in nats per sentence, and perplexities."""
    totals, rows, num_words = collections.Counter(), len(part), int(part.sources.lengths.sum())
    informed, num_tokens = run.options.variational.informed if kind.attention else "none", num_words + rows
    for number, sentences in enumerate(progress(sentences_of(run, part), "likelihood")):
        seed = random.fold_in(random.as_seed(_SEED), number)
        figures = writer.draw_figures(*sentences, seed) | {"published": writer.published_log_p(*sentences, seed)}
        totals.update({name: float(x.numpy().sum(dtype="float64")) for name, x in figures.items()})
    bound = totals["log_likelihood"] - totals["kl_code"] - totals["kl_steps"] - totals["kl_context"]
    return {
        "num_words": num_words,
        "num_tokens": num_tokens,
        # The published value omits the KLs, and its perplexity does not count the end token.
        "published": {"nats": -totals["published"] / rows, "perplexity": perplexity(-totals["published"] / num_words)},
        "reconstruction": -totals["log_likelihood"] / rows,
        "kl_code": totals["kl_code"] / rows if kind.latent else None,
        "kl_steps": totals["kl_steps"] / rows if informed != "none" else None,
        "kl_context": totals["kl_context"] / rows if informed == "both" else None,
        "elbo": {"nats": -bound / rows, "perplexity": perplexity(-bound / num_tokens)},
    }


def _importance_weighted(run, part, writer, num_draws):
    """Return the importance-weighted bound, and the ELBO from the same samples."""
    total, elbo, num_tokens = 0.0, 0.0, 0
    for number, sentences in enumerate(progress(sentences_of(run, part), f"{num_draws} draws"), start=1):
        log_weights = writer.log_weights(*sentences, num_draws, seed_of_batch(_SEED, number)).numpy().astype("float64")
        total -= np.sum(logsumexp(log_weights, axis=0) - np.log(num_draws))
        elbo -= np.sum(log_weights.mean(axis=0))
        num_tokens += int(np.count_nonzero(sentences[-1]))
    return {
        "num_sentences": len(part),
        "num_draws": num_draws,
        "nats": total / len(part),
        "perplexity": perplexity(total / num_tokens),
        "elbo_nats": elbo / len(part),
        "elbo_perplexity": perplexity(elbo / num_tokens),
    }


def _controls(run, part, writer):
    """Return how much log p(x | z) drops (mean and standard error, nats per sentence) if z_enc is 0 or from another
    sentence. z_t and c~_t are the means of q. Return `None` for a single sentence."""
    if len(part) < 2:
        return None
    batches = sentences_of(run, part)
    codes = np.concatenate([writer.posterior(source)["mean"] for source, _, _ in batches])
    # The sentences are sorted by length, so "shuffled" uses a sentence of similar length.
    codes_by_control = {"shuffled": np.roll(codes, 1, axis=0), "zero": np.zeros_like(codes)}
    differences, start = {name: [] for name in codes_by_control}, 0
    for sentences in progress(batches, "controls"):
        rows = slice(start, start + len(sentences[0]))
        log_likelihood = writer.figures_at(*sentences, codes[rows])["log_likelihood"].numpy()
        for name, z in codes_by_control.items():
            differences[name].append(log_likelihood - writer.figures_at(*sentences, z[rows])["log_likelihood"].numpy())
        start = rows.stop
    return {name: mean_with_error(np.concatenate(x)) for name, x in differences.items()}


def _map(run, part, writer):
    """Return the mean "entropy" of attention weights in nats, and "moves", their mean total variation between steps."""
    moves, entropies = [], []
    for sentences in progress(sentences_of(run, part), "attention"):
        weights, mask = writer.attention(*sentences).numpy().astype("float64"), sentences[-1].numpy() != PAD
        moves.append(np.mean(0.5 * np.abs(np.diff(weights, axis=1)).sum(axis=-1), axis=1, where=mask[:, 1:]))
        entropies.append(np.mean(entr(weights).sum(axis=-1), axis=1, where=mask))
    return {"moves": float(np.concatenate(moves).mean()), "entropy": float(np.concatenate(entropies).mean())}


def samples_of(run, part, writer):
    """Return generated sentences, reconstructions, and interpolations between two sentences."""
    samples = {"generated": strings(writer.generate(NUM_GENERATED, 0)), "reconstructed": [], "interpolated": []}
    if MODELS[run.options.model].latent:
        texts = [part.pairs.texts[row] for row in random_rows(len(part), NUM_GENERATED)]
        samples["reconstructed"] = list(zip(texts, strings(writer.reconstruct(tf.constant(texts))), strict=True))
        between = interpolated(writer, texts[:2], NUM_INTERPOLATED) if len(texts) > 1 else []
        samples["interpolated"] = [text for text, _ in itertools.groupby(between)]
    return samples


def attention(run, part):
    """Return an `Alignment` for the reconstruction of each of a few random sentences."""
    if not run.models.attends:
        return []
    writer, lengths, alignments = Writer(run), part.sources.lengths, []
    short = np.flatnonzero((lengths <= 20) | (lengths.min() > 20))
    for row in short[random_rows(len(short), NUM_ALIGNMENTS)]:
        text, ids = part.pairs.texts[row], [part.sources[row]]
        weights = writer.attention(*teacher_forced(ids, ids))[0].numpy()
        words = run.codec.tokenizer.token_lists([text])[0][: len(ids[0])]
        alignments.append(Alignment(text, [*words, "<end>"], {"": weights}, source=words))
    return alignments


def paper(comparison):
    """Return Tables 1 and 2 of Chien and Wang 2019 with our results, and a table of bounds."""
    records = comparison.records
    return [
        *(with_paper(f"Table {n} of VRAE-SA", f"vrae_{n}", PAPER, records, first_of=_title_of) for n in (1, 2)),
        titled("Bounds", main_table(OURS, records, first_of=_title_of)),
    ]


def _title_of(name):
    """Return the first cell of a table row, in a tuple."""
    return (title_from(name, lambda model: MODELS[model].title if model in MODELS else model),)


def table_3(comparison):
    """Let every run summarize `--documents`; return Table 3 (ROUGE-1) of Chien and Wang 2019."""
    options = comparison.options
    folder = f"table_3_{digest_of(read_topics(options.documents, options.references))[:12]}"
    words = ["--documents", options.documents, "--references", options.references, "--document", options.document]
    words += [] if options.max_words is None else ["--max-words", str(options.max_words)]

    def arguments_of(run):
        return [*words, "--out", f"{run.options.run.out}/{folder}"]

    reports = comparison.evaluate(folder, arguments_of, command="summarize", written=f"{folder}/summaries.json")
    rouge_of = lambda report: {"rouge": means(report["systems"][report["model"]])}  # noqa: E731
    records = {
        name: [record | rouge_of(report) for record, report in zip(comparison.records[name], summaries, strict=True)]
        for name, summaries in reports.items()
    }
    first = next(iter(reports.values()))[0]
    # The baselines do not depend on the seed.
    baselines = {name: [{"rouge": means(x)}] for name, x in first["systems"].items() if name != first["model"]}
    columns = [Column(head, f"rouge.rouge1.{part}") for part, head in PARTS.items()]
    title = f"Table 3 of VRAE-SA, ROUGE-1, {first['num_topics']} topics, at most {first['max_words']} words, document: "
    title += first["document"]
    return [with_paper(title, "vrae_3", columns, records | baselines, first_of=_title_of)]


LAYOUTS = {"paper": paper, "table_3": table_3}
