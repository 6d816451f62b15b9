"""Extractive summaries by a model's Gaussians of sentences, and other summaries to compare them with.

The model of a text is a diagonal Gaussian: p(c~_T | z_T) of a stochastic decoder, q(z_enc | x) of a VRAE, N(h_T, I) of
an LSTM. A summary has the sentences with the smallest KL(document || sentence) (section 4.1 of the paper).
"""

import dataclasses
import pathlib

import numpy as np
import tensorflow as tf

from applications.common.errors import InputError
from applications.common.progress import progress
from applications.common.records import read_record
from applications.common.runs import digest_of, write_json, write_text_atomically
from applications.common.significance import mean_interval
from applications.common.tables import interval_text, table, titled
from applications.common.training import load_run
from applications.vrae.decode import Writer
from applications.vrae.documents import read_topics
from applications.vrae.options import PROGRAM

PARTS = {"recall": "recall", "precision": "precision", "fmeasure": "F"}
# Random summaries of a topic, whose figures are averaged.
NUM_RANDOM = 20
_BATCH = 64


@dataclasses.dataclass
class Gaussians:
    """N diagonal Gaussians: means (N, D) and log sigma (N, D)."""

    means: np.ndarray
    log_scales: np.ndarray

    def mixture(self):
        """Return the Gaussian, of N = 1, with the moments of their mixture in equal parts."""
        mean = self.means.mean(axis=0)
        variance = np.mean(np.exp(2.0 * self.log_scales) + np.square(self.means - mean), axis=0)
        return Gaussians(mean[None], 0.5 * np.log(variance)[None])


def divergences(document, sentences):
    """Return KL(document || sentence) in nats, (N,), of the `Gaussians` of a document and of N sentences."""
    gap = document.log_scales - sentences.log_scales
    distance = (document.means - sentences.means) * np.exp(-sentences.log_scales)
    return 0.5 * np.sum(np.exp(2.0 * gap) - 1.0 - 2.0 * gap + distance**2, axis=1)


def extract(order, sentences, max_words):
    """Return the text of a summary: the sentences that fit, the best first in `order`, in the order of the document.

    Where none fits, the best one is cut.
    """
    indices, count = [], 0
    for index in order:
        num_words = len(sentences[index].split())
        if count + num_words <= max_words:
            indices.append(int(index))
            count += num_words
    text = " ".join(sentences[index] for index in sorted(indices) or [order[0]])
    return " ".join(text.split()[:max_words])


def rouge(summary, references):
    """Return ROUGE-1 of a summary, stemmed: recall, precision and F, means over the references."""
    from rouge_score import rouge_scorer

    scorer = rouge_scorer.RougeScorer(["rouge1"], use_stemmer=True)
    return means([scorer.score(reference, summary)["rouge1"]._asdict() for reference in references])


def means(figures):
    """Return the means of several results of `rouge`."""
    return tf.nest.map_structure(lambda *values: float(np.mean(values)), *figures)


def gaussians(run, writer, texts, max_length):
    """Return the `Gaussians` of texts by the trained model of a `Run`; with a `max_length` of `None`, of all words."""
    batches = []
    for start in range(0, len(texts), _BATCH):
        batch = tf.constant(texts[start : start + _BATCH])
        target_input, target, _ = run.codec.encode_targets(batch, max_length)
        batches.append(writer.describe(run.codec.encode(batch, max_length), target_input, target))
    parameters = ([batch[name].numpy().astype("float64") for batch in batches] for name in ("mean", "log_scale"))
    return Gaussians(*map(np.concatenate, parameters))


def ordered(run, writer, sentences, document):
    """Return the indices of sentences, the nearest to their document first; `document` is as in `SummarizeVrae`."""
    of_sentences = gaussians(run, writer, sentences, run.options.text.max_length)
    if document == "mixture":
        of_document = of_sentences.mixture()
    else:
        of_document = gaussians(run, writer, [" ".join(sentences)], None)
    return np.argsort(divergences(of_document, of_sentences), kind="stable")


def summarize(options):
    """Write summaries of documents as `SummarizeVrae` says. Where there are references, print the figures beside the
    figures of other ways to choose sentences."""
    run = load_run(PROGRAM.application(), options.run)
    topics = read_topics(options.documents, options.references)
    folder = pathlib.Path(options.out or pathlib.Path(options.run, "summaries"))
    digest = digest_of([dataclasses.asdict(topic) for topic in topics])
    _require_same(folder, digest)
    writer, generator, model = Writer(run), np.random.default_rng(0), run.options.model
    systems = {model: [], "lead": [], "random": []}
    for topic in progress(topics, "summaries"):
        sentences = topic.sentences
        orders = {
            model: [ordered(run, writer, sentences, options.document)],
            "lead": [range(len(sentences))],
            "random": [generator.permutation(len(sentences)) for _ in range(NUM_RANDOM)],
        }
        for name, of_system in orders.items():
            systems[name].append([extract(order, sentences, options.max_words) for order in of_system])
    folder.mkdir(parents=True, exist_ok=True)
    for topic, (summary,) in zip(topics, systems[model], strict=True):
        write_text_atomically(folder / f"{topic.name}.txt", f"{summary}\n")
    record = {
        "model": model,
        "seed": run.options.run.seed,
        "document": options.document,
        "max_words": options.max_words,
        "num_topics": len(topics),
        "data_digest": digest,
    }
    if options.references is not None:
        record["topics"] = [topic.name for topic in topics]
        record["systems"] = {
            name: [means([rouge(text, topic.references) for text in texts]) for topic, texts in zip(topics, of_system)]
            for name, of_system in systems.items()
        }
        print(table_of(record), end="\n\n")
    write_json(folder / "summaries.json", record)
    print(f"written: {folder}, a file for each of {len(topics)} topics, and summaries.json")


def _require_same(folder, digest):
    """Raise `InputError` if the folder has something else than summaries of these documents."""
    path = folder / "summaries.json"
    if path.is_file():
        is_same = read_record(path, "Choose another folder.").get("data_digest") == digest
    else:
        is_same = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not is_same:
        raise InputError(f"--out: {folder} has something else than summaries of these documents; name another folder.")


def table_of(record):
    """Return the table of a record of `summarize`: means over topics with 95% intervals, in per cent."""
    rows = []
    for name, topics in record["systems"].items():
        cells = ([100.0 * topic[part] for topic in topics] for part in PARTS)
        rows.append([name, *(interval_text(mean_interval(cell), 1) for cell in cells)])
    title = f"ROUGE-1 (%), stemmed, means over {record['num_topics']} topics with 95% intervals, at most "
    title += f"{record['max_words']} words; random: the mean of {NUM_RANDOM}; seed {record['seed']}, no claim"
    return titled(title, table(["system", *PARTS.values()], rows))
