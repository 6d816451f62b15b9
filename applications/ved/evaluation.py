"""Reports of a trained model: quality and diversity as in the paper's tables, bounds and perplexities."""

import numpy as np
import tensorflow as tf

import keras_vattn
from applications.common.bounds import bound_report, perplexity
from applications.common.progress import progress
from applications.text.batching import padded
from applications.text.metrics import bleu_table, distinct, self_bleu, unigram_entropy
from applications.text.text import PAD
from applications.ved.data import unique_sources
from applications.ved.generation import Generator
from applications.ved.options import MODELS
from keras_vattn.losses import sequence_log_likelihood

BATCH = 64


def decode_all(decode, encoder, ids, title=None):
    """Apply a function of padded source ids (B, S) and the batch's number that returns target ids (B, ..., L).

    Args:
        decode: The function.
        encoder: `TextEncoder` of the target side.
        ids: List of int arrays.
        title: Name of the progress line, or `None`.

    Returns:
        A list with the sentence, or the list of sentences, of each source.
    """
    sentences = []
    starts = range(0, len(ids), BATCH)
    for number, start in enumerate(progress(starts, title) if title else starts):
        batch = tf.constant(padded(ids[start : start + BATCH]))
        sentences += [_text(row) for row in encoder.decode(decode(batch, number)).numpy()]
    return sentences


def seed_of_batch(seed, number):
    """Return an int32 seed for each batch: one seed for all of them would give every batch the same noise."""
    return int(np.int64(seed + 1_000_003 * number).astype(np.int32))


def _text(row):
    return row.decode() if isinstance(row, bytes) else [sentence.decode() for sentence in row]


def quality(hypotheses, references, lowercase):
    """Return BLEU-1 to BLEU-4 of one sentence per source, with sacrebleu's signature."""
    table = bleu_table(hypotheses, references, lowercase)
    return {f"bleu_{order}": result.score for order, result in table.items()} | {"bleu_signature": table[4].signature}


def diversity(draws, references, lowercase):
    """Return the sampling columns of Table 2: BLEU averaged over the draws, entropy (nats), Dist-n, self-BLEU."""
    by_draw = [
        quality([sentences[index] for sentences in draws], references, lowercase)
        for index in progress(range(len(draws[0])), "BLEU of the draws")
    ]
    report = {name: float(np.mean([row[name] for row in by_draw])) for name in by_draw[0] if name != "bleu_signature"}
    report |= {"entropy": unigram_entropy(draws), "dist_1": distinct(draws, 1), "dist_2": distinct(draws, 2)}
    report |= {f"dist_{n}_published": distinct(draws, n, published=True) for n in (1, 2)}
    report["self_bleu"] = self_bleu(draws) if len(draws[0]) > 1 else None
    valid = [len(set(sentences) & set(answers)) for sentences, answers in zip(draws, references, strict=True)]
    report["distinct_references_among_draws"] = float(np.mean(valid))
    report["distinct_draws"] = float(np.mean([len(set(sentences)) for sentences in draws]))
    return report


def sample_report(run, ids, references, temperature=1.0, word_temperature=None, title=None, generator=None):
    """Return the `diversity` of `num_draws` draws per source, and the draws."""
    generator = generator or Generator(run)
    draw, factor = generator.draw, temperature
    if word_temperature is not None:
        draw, factor = generator.draw_words, word_temperature
    count = run.options.reports.num_draws
    draws = decode_all(
        lambda batch, number: draw(batch, count, seed_of_batch(1, number), factor), run.codec.target, ids, title
    )
    return diversity(draws, references, run.options.text.lowercase), draws


def evaluate(run, part, maximum=None):
    """Return everything reported about a part, and the sentences it was computed from.

    Args:
        run: `Run`.
        part: `EncodedPairs`.
        maximum: Decode that many different sources, or all.
    """
    generator = Generator(run)
    ids, sources, references = decoded_sources(run, part, maximum)
    greedy = decode_all(lambda batch, _: generator.greedy(batch)["ids"], run.codec.target, ids, "decoding")
    report = {"num_sources": len(sources), "map": quality(greedy, references, run.options.text.lowercase)}
    draws = None
    if MODELS[run.options.model].stochastic:
        title = f"{run.options.reports.num_draws} draws"
        report["sampling"], draws = sample_report(run, ids, references, title=title, generator=generator)
    report["likelihood"] = likelihood_report(run, part, generator)
    return report, {"sources": sources, "references": references, "greedy": greedy, "draws": draws}


def decoded_sources(run, part, maximum=None):
    """Return the ids of the different sources of a part, their text, and the references of each."""
    sources, references = unique_sources(run.codec, part.pairs, maximum)
    ids, _ = run.codec.source.encode_numpy(sources, run.options.text.max_source_length)
    return ids, sources, references


def likelihood_report(run, part, generator):
    """Return the plug-in perplexity and, for a model that draws, the ELBO in nats per sentence with its parts.

    The ELBO is estimated with one posterior draw per pair. Tokens count the end of the sentence.
    """
    model, batches = run.models.training, part.batches(run.options.fit.batch_size, run.options.run.seed)
    total, tokens, rows, means = 0.0, 0, 0, []
    for inputs, target in progress(batches, "likelihood"):
        value = generator.log_likelihood(inputs["source"], inputs["target_input"], target)
        total += float(tf.reduce_sum(value))
        tokens += int(tf.math.count_nonzero(target))
        rows += int(target.shape[0])
        if MODELS[run.options.model].latent:
            means.append(run.models.encoder(inputs["source"])["z"].numpy())
    report = {"num_tokens": tokens, "perplexity": perplexity(-total / tokens), "nats": -total / rows}
    if means:
        report["active_units"] = active_units(np.concatenate(means))
    if not MODELS[run.options.model].stochastic:
        return report

    @tf.function(reduce_retracing=True, autograph=False)
    def drawn(inputs, target, seed):
        with keras_vattn.posterior_draws(model, seed=seed):
            logits = model(inputs, training=False)
        value = sequence_log_likelihood(target, logits, ignore_class=PAD)
        return value, tf.math.count_nonzero(target), keras_vattn.divergences(model)

    return report | bound_report(lambda *batch: drawn(*batch[:2], tf.constant(batch[2])), batches)


def active_units(means):
    """Return how many units of z vary with the source: those of a variance of the posterior mean over 0.01 (Burda et
    al. 2016).

    Args:
        means: (N, Z), posterior means.
    """
    return int((means.astype("float64").var(axis=0) > 0.01).sum())


def quality_diversity(run, part, options):
    """Return a dictionary from "latent" and "word" to the diversity reports at each temperature."""
    ids, _, references = decoded_sources(run, part, options.max_sources)
    # One for all temperatures, which are tensors: another one would be traced again.
    generator, curves = Generator(run), {}
    for kind, temperatures in (("latent", options.latent_temperatures), ("word", options.word_temperatures)):
        if kind == "latent" and not MODELS[run.options.model].stochastic:
            continue
        for temperature in temperatures:
            arguments = {"temperature" if kind == "latent" else "word_temperature": temperature}
            title = f"{kind} temperature {temperature:g}"
            report, _ = sample_report(run, ids, references, title=title, generator=generator, **arguments)
            curves.setdefault(kind, []).append({"temperature": temperature, **report})
    return curves
