"""Extract summaries with a trained model, and compare them with baselines.

A Gaussian represents each text (Chien and Wang 2019, section 4.1): p(c~_T | z_T) for a stochastic decoder,
q(z_enc | x) for a VRAE, N(h_T, I) for an LSTM. A summary has the sentences with the lowest KL(document || sentence).
"""

import dataclasses
import pathlib

import numpy as np
import tensorflow as tf

from applications.common.errors import InputError
from applications.common.progress import progress
from applications.common.records import read_record
from applications.common.runs import digest_of, write_json, write_text_atomically
from applications.common.tables import Column, main_table, titled
from applications.common.training import load_run
from applications.vrae.decode import Writer
from applications.vrae.documents import embedded_topics, read_topics
from applications.vrae.options import PROGRAM

MEASURES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
PARTS = {"recall": "recall", "precision": "precision", "fmeasure": "F"}
# Number of random baseline summaries per topic, and of printed summaries without references.
NUM_RANDOM, NUM_SHOWN = 20, 3
# LexRank's minimum similarity (Erkan and Radev 2004, section 3.2), and PageRank's damping factor.
_LEAST_SIMILARITY, _DAMPING = 0.1, 0.85
_BATCH = 64


@dataclasses.dataclass
class Gaussians:
    """N diagonal Gaussians: means (N, D) and log standard deviations (N, D)."""

    means: np.ndarray
    log_scales: np.ndarray

    def mixture(self):
        """Return one Gaussian with the mean and variance of the equally weighted mixture of all Gaussians."""
        mean = self.means.mean(axis=0)
        variance = np.mean(np.exp(2.0 * self.log_scales) + np.square(self.means - mean), axis=0)
        return Gaussians(mean[None], 0.5 * np.log(variance)[None])


def divergences(document, sentences):
    """Return KL(document || sentence) in nats, (N,), for `Gaussians` of one document and N sentences."""
    gap = document.log_scales - sentences.log_scales
    distance = (document.means - sentences.means) * np.exp(-sentences.log_scales)
    return 0.5 * np.sum(np.exp(2.0 * gap) - 1.0 - 2.0 * gap + distance**2, axis=1)


def extract(order, sentences, max_words):
    """Return a summary of at most `max_words` words.

    Sentences are selected in `order` if they fit, and joined in document order. If no sentence fits, the first sentence
    in `order` is truncated.
    """
    indices, count = [], 0
    for index in order:
        num_words = len(sentences[index].split())
        if count + num_words <= max_words:
            indices.append(int(index))
            count += num_words
    text = " ".join(sentences[index] for index in sorted(indices) or [order[0]])
    return " ".join(text.split()[:max_words])


def lexrank(sentences):
    """Rank sentences by continuous LexRank (Erkan and Radev 2004); return indices, most central first."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectors = TfidfVectorizer(token_pattern=r"(?u)\S+").fit_transform(sentences)
    similar = (vectors @ vectors.T).toarray()
    # With self-similarity, an isolated sentence would be central.
    np.fill_diagonal(similar, 0.0)
    similar[similar < _LEAST_SIMILARITY] = 0.0
    # As in PageRank, an isolated sentence links to all sentences.
    similar[~similar.any(axis=1)] = 1.0
    follows = similar / similar.sum(axis=1, keepdims=True)
    rank = np.linalg.solve(np.eye(len(similar)) - _DAMPING * follows.T, np.ones(len(similar)))
    return np.argsort(-rank, kind="stable")


def rouge(summary, references):
    """Return recall, precision and F of each stemmed ROUGE measure, averaged over the references."""
    from rouge_score import rouge_scorer

    scorer = rouge_scorer.RougeScorer(list(MEASURES), use_stemmer=True)
    scores = [scorer.score(reference, summary) for reference in references]
    return means([{name: score._asdict() for name, score in row.items()} for row in scores])


def means(figures):
    """Average several results of `rouge`."""
    return tf.nest.map_structure(lambda *values: float(np.mean(values)), *figures)


class Summarizer:
    """Orders the sentences of a document with the model of a `Run`. `document` is the option --document."""

    def __init__(self, run, document="mixture"):
        self._writer, self._words = Writer(run), run.codec
        self._document, self._max_length = document, run.options.text.max_length
        self.num_tokens = self.num_unknown = 0

    def order(self, sentences):
        """Return the indices of the sentences; the sentence closest to the document is first."""
        _, counts = self._words.encode_numpy(sentences)
        self.num_tokens, self.num_unknown = self.num_tokens + counts.num_tokens, self.num_unknown + counts.num_unknown
        gaussians = self._gaussians(sentences, self._max_length)
        document = gaussians.mixture() if self._document == "mixture" else self._gaussians([" ".join(sentences)], None)
        return np.argsort(divergences(document, gaussians), kind="stable")

    def _gaussians(self, texts, max_length):
        batches = []
        for start in range(0, len(texts), _BATCH):
            batch = tf.constant(texts[start : start + _BATCH])
            target_input, target, _ = self._words.encode_targets(batch, max_length)
            batches.append(self._writer.describe(self._words.encode(batch, max_length), target_input, target))
        parameters = ([batch[name].numpy().astype("float64") for batch in batches] for name in ("mean", "log_scale"))
        return Gaussians(*map(np.concatenate, parameters))


def summarize(options):
    """Write summaries. If references are given, print the ROUGE scores of all methods."""
    run = load_run(PROGRAM.application(), options.run)
    if options.documents is None:
        topics, max_words = embedded_topics(), options.max_words or 250
    else:
        topics, max_words = read_topics(options.documents, options.references), options.max_words or 25
    folder = pathlib.Path(options.out or pathlib.Path(options.run, "summaries"))
    digest = digest_of([dataclasses.asdict(topic) for topic in topics])
    _require_same(folder, digest)
    summarizer, generator = Summarizer(run, options.document), np.random.default_rng(0)
    model = run.options.model
    orders_of = {
        model: lambda sentences: [summarizer.order(sentences)],
        "lead": lambda sentences: [range(len(sentences))],
        "random": lambda sentences: [generator.permutation(len(sentences)) for _ in range(NUM_RANDOM)],
        "LexRank": lambda sentences: [lexrank(sentences)],
    }
    systems = {name: [] for name in orders_of}
    for topic in progress(topics, "summaries"):
        for name, orders in orders_of.items():
            systems[name].append([extract(order, topic.sentences, max_words) for order in orders(topic.sentences)])
    summaries = {topic.name: summary for topic, (summary,) in zip(topics, systems[model], strict=True)}
    record = {
        "model": model,
        "seed": run.options.run.seed,
        "document": options.document,
        "max_words": max_words,
        "num_topics": len(topics),
        "num_tokens": summarizer.num_tokens,
        "num_unknown": summarizer.num_unknown,
        "data_digest": digest,
    }
    if options.references is not None:
        record["topics"] = list(summaries)
        record["systems"] = {
            name: [means([rouge(text, topic.references) for text in texts]) for topic, texts in zip(topics, system)]
            for name, system in systems.items()
        }
        print(table_of(record), end="\n\n")
    else:
        for name in list(summaries)[:NUM_SHOWN]:
            print(f"{name}: {summaries[name]}", end="\n\n")
    print(f"{summarizer.num_unknown / summarizer.num_tokens:.1%} of the documents' tokens are unknown to the model")
    folder.mkdir(parents=True, exist_ok=True)
    for name, summary in summaries.items():
        write_text_atomically(folder / f"{name}.txt", f"{summary}\n")
    write_json(folder / "summaries.json", record)
    print(f"written: {folder}, one file for each of {len(topics)} topics, and summaries.json")


def _require_same(folder, digest):
    path = folder / "summaries.json"
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not path.is_file()):
        raise InputError(f"--out: {folder} contains other files; choose another folder.")
    if path.is_file() and read_record(path, "Choose another folder.").get("data_digest") != digest:
        raise InputError(f"--out: {folder} contains summaries of other documents; choose another folder.")


def table_of(record):
    """Format a record of `summarize`: means over topics in percent, with 95% intervals."""
    columns = [
        Column(f"{title} {head}", f"{measure}.{part}", 1, 100.0)
        for measure, title in MEASURES.items()
        for part, head in PARTS.items()
    ]
    title = f"ROUGE (%), stemmed, means over {record['num_topics']} topics with 95% intervals, at most "
    title += f"{record['max_words']} words; random: the mean of {NUM_RANDOM}; seed {record['seed']}, no claim"
    return titled(title, main_table(columns, record["systems"], ["system"]))
