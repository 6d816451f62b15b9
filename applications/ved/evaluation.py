"""Reports of a trained model: quality and diversity as in the paper's tables, bounds and perplexities, samples."""

import numpy as np
import tensorflow as tf

import keras_vattn
from applications.common.progress import progress
from applications.text.metrics import bleu_table, distinct, self_bleu, unigram_entropy
from applications.text.text import PAD
from applications.ved.data import unique_sources
from applications.ved.options import find_row
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
        part = ids[start : start + BATCH]
        padded = np.zeros((len(part), max(1, *(len(row) for row in part))), np.int32)
        for index, row in enumerate(part):
            padded[index, : len(row)] = row
        decoded = encoder.decode(decode(tf.constant(padded), number)).numpy()
        sentences += [_text(row) for row in decoded]
    return sentences


def seed_of_batch(seed, number):
    """Return an int32 seed for each batch: one seed for all of them would give every batch the same noise."""
    return int(np.int64(seed + 1_000_003 * number).astype(np.int32))


def _text(row):
    return row.decode() if isinstance(row, bytes) else [sentence.decode() for sentence in row]


def quality(hypotheses, references):
    """Return BLEU-1 to BLEU-4 of one sentence per source, with sacrebleu's signature."""
    table = bleu_table(hypotheses, references)
    return {f"bleu_{order}": result.score for order, result in table.items()} | {"bleu_signature": table[4].signature}


def diversity(draws, references):
    """Return the sampling columns of Table 2: BLEU averaged over the draws, entropy (nats), Dist-n, self-BLEU."""
    by_draw = [
        quality([sentences[index] for sentences in draws], references)
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


def sample_report(
    generator, codec, options, ids, references, temperature=1.0, seed=1, word_temperature=None, title=None
):
    """Return the `diversity` of `num_draws` draws per source, and the draws."""
    if word_temperature is None:
        draw, factor = generator.draw, temperature
    else:
        draw, factor = generator.draw_words, word_temperature
    draws = decode_all(
        lambda batch, number: draw(batch, options.num_draws, seed_of_batch(seed, number), factor),
        codec.target,
        ids,
        title,
    )
    return diversity(draws, references), draws


def evaluate_split(generator, models, codec, options, pairs, encoded, maximum=None):
    """Return everything reported about a split, and the sentences it was computed from.

    Args:
        generator: `Generator`.
        models: `Models`.
        codec: `Codec`.
        options: `Options`.
        pairs: `ParallelText`.
        encoded: `EncodedPairs` of it.
        maximum: Decode that many different sources, or all.
    """
    sources, references = unique_sources(codec, pairs, maximum)
    ids, _ = codec.source.encode_numpy(sources, options.max_source_length)
    greedy = decode_all(lambda batch, _: generator.greedy(batch)["ids"], codec.target, ids, "decoding")
    report = {"num_sources": len(sources), "map": quality(greedy, references)}
    draws = None
    if find_row(options.row).stochastic:
        report["sampling"], draws = sample_report(
            generator, codec, options, ids, references, title=f"{options.num_draws} draws"
        )
    report["likelihood"] = likelihood_report(generator, models, options, encoded)
    return report, {"sources": sources, "references": references, "greedy": greedy, "draws": draws}


def likelihood_report(generator, models, options, encoded):
    """Return the plug-in perplexity and, for a stochastic row, the ELBO in nats per sentence with its parts.

    The ELBO is estimated with one posterior draw per pair. Tokens count the end of the sentence.
    """
    stochastic = bool(keras_vattn.stochastic_layers(models.training))

    @tf.function(reduce_retracing=True, autograph=False)
    def drawn_log_likelihood(inputs, target_output, seed):
        with keras_vattn.posterior_draws(models.training, seed=seed):
            logits = models.training(inputs, training=False)
        log_likelihood = sequence_log_likelihood(target_output, logits, ignore_class=PAD)
        return log_likelihood, keras_vattn.divergences(models.training)

    plug_in, drawn, tokens, rows, divergences = 0.0, 0.0, 0, 0, {}
    for index, (inputs, target_output) in enumerate(progress(encoded.batches(options), "likelihood")):
        if stochastic:
            log_likelihood, added = drawn_log_likelihood(inputs, target_output, tf.constant(index))
            drawn += float(tf.reduce_sum(log_likelihood))
            for name, divergence in added.items():
                divergences[name] = divergences.get(name, 0.0) + float(divergence) * len(log_likelihood)
        plug_in += float(
            tf.reduce_sum(generator.log_likelihood(inputs["source"], inputs["target_input"], target_output))
        )
        tokens += int(tf.math.count_nonzero(target_output))
        rows += int(target_output.shape[0])
    divergences = {name: total / rows for name, total in divergences.items()}
    report = {
        "num_tokens": tokens,
        "plug_in_perplexity": float(np.exp(-plug_in / tokens)),
        "plug_in_nats": -plug_in / rows,
    }
    if stochastic:
        bound = drawn / rows - sum(divergences.values())
        report |= {"reconstruction_nats": -drawn / rows, **divergences}
        report |= {"elbo_nats": bound, "elbo_perplexity": float(np.exp(-bound * rows / tokens))}
    return report
