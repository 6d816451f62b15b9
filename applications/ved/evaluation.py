"""Reports of a trained model: quality and diversity as in the paper's tables, bounds and perplexities."""

import numpy as np
import tensorflow as tf

import keras_vattn
from applications.common.bounds import bound_report
from applications.common.progress import progress
from applications.text.batching import padded
from applications.text.metrics import bleu_table, distinct, group_references, self_bleu, unigram_entropy
from applications.text.perplexity import likelihood_report
from applications.text.text import PAD
from applications.ved.generation import Generator
from applications.ved.options import MODELS
from keras_vattn.losses import sequence_log_likelihood

BATCH = 64


def decode_all(decode, encoder, ids, title=None):
    """Return the sentence, or the list of sentences, of each source.

    Args:
        decode: Function of padded source ids (B, S) and the batch's number that returns target ids (B, ..., L).
        encoder: `TextEncoder` of the target side.
        ids: List of int arrays.
        title: Name of the progress line, or `None`.
    """
    sentences = []
    starts = range(0, len(ids), BATCH)
    for number, start in enumerate(progress(starts, title) if title else starts):
        decoded = encoder.decode(decode(tf.constant(padded(ids[start : start + BATCH])), number))
        sentences += np.char.decode(decoded.numpy().astype(bytes), "utf-8").tolist()
    return sentences


def seed_of_batch(seed, number):
    """Return an int32 seed for each batch: one seed for all of them would give every batch the same noise."""
    return int(np.int64(seed + 1_000_003 * number).astype(np.int32))


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


def sample_report(run, generator, ids, references, kind="latent", temperature=1.0, title=None):
    """Return the `diversity` of `num_draws` draws per source, of latents or of words, and the draws."""
    draw = {"latent": generator.draw, "word": generator.draw_words}[kind]
    decode = lambda batch, number: draw(batch, run.options.reports.num_draws, seed_of_batch(1, number), temperature)  # noqa: E731
    draws = decode_all(decode, run.codec.target, ids, title)
    return diversity(draws, references, run.options.text.lowercase), draws


def evaluate(run, part, maximum=None, temperatures=None):
    """Return everything reported about a part, and the sentences it was computed from.

    Args:
        run: `Run`.
        part: `EncodedPairs`.
        maximum: Number of different sources that are decoded, the first ones, or `None` for all.
        temperatures: Dictionary from "latent" and "word" to the temperatures at which quality is traced against
            diversity, or `None`.
    """
    generator = Generator(run)
    ids, sources, references = decoded_sources(run, part, maximum)
    greedy = decode_all(lambda batch, _: generator.greedy(batch)["ids"], run.codec.target, ids, "decoding")
    report = {"num_sources": len(sources), "map": quality(greedy, references, run.options.text.lowercase)}
    draws = None
    if MODELS[run.options.model].stochastic:
        title = f"{run.options.reports.num_draws} draws"
        report["sampling"], draws = sample_report(run, generator, ids, references, title=title)
    report["likelihood"] = likelihood_of(run, part, generator)
    if temperatures is not None:
        report["curves"] = {kind: [] for kind, values in temperatures.items() if values}
        for kind, curve in report["curves"].items():
            for temperature in temperatures[kind]:
                title = f"{kind} temperature {temperature:g}"
                point, _ = sample_report(run, generator, ids, references, kind, temperature, title)
                curve.append({"temperature": temperature, **point})
    return report, {"sources": sources, "references": references, "greedy": greedy, "draws": draws}


def decoded_sources(run, part, maximum=None):
    """Return the ids of the different sources of a part, their text, and the tokenised references of each."""
    codec, pairs = run.codec, part.pairs
    targets = [" ".join(tokens) for tokens in codec.target.tokenizer.token_lists(pairs.targets)]
    references = group_references(pairs.sources, targets)
    sources = list(references)[:maximum]
    ids, _ = codec.source.encode_numpy(sources, run.options.text.max_source_length)
    return ids, sources, [references[source] for source in sources]


def likelihood_of(run, part, generator):
    """Return the plug-in perplexity and, for a model that draws, the ELBO in nats per sentence with its parts.

    The ELBO is estimated with one posterior draw per pair.
    """
    kind, model = MODELS[run.options.model], run.models.training
    batches = part.batches(run.options.fit.batch_size, run.options.run.seed)
    report = likelihood_report(
        lambda inputs, target, _: generator.log_likelihood(inputs["source"], inputs["target_input"], target), batches
    )
    if kind.latent:
        means = [run.models.encoder(inputs["source"])["z"] for inputs, _ in batches]
        report["active_units"] = keras_vattn.metrics.active_units(np.concatenate(means))
    if not kind.stochastic:
        return report

    @tf.function(reduce_retracing=True, autograph=False)
    def drawn(inputs, target, seed):
        with keras_vattn.posterior_draws(model, seed=seed):
            logits = model(inputs, training=False)
        value = sequence_log_likelihood(target, logits, ignore_class=PAD)
        return value, tf.math.count_nonzero(target), keras_vattn.divergences(model)

    return report | bound_report(lambda *batch: drawn(*batch[:2], tf.constant(batch[2])), batches)
