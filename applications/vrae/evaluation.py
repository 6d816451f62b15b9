"""Reports of a trained model: what its numbers mean is in their names.

Shapes: N sentences, B of a batch, T words with the end, Z units of z_enc.
"""

import numpy as np
import tensorflow as tf
from scipy.special import logsumexp

from applications.common.bounds import perplexity
from applications.common.progress import progress
from applications.text.pairs import evenly
from applications.vrae.generation import seed_of_batch
from applications.vrae.options import MODELS
from keras_vattn import metrics, random

# Seed of the draws: reports of equal runs are equal.
_SEED = 0
# Steps whose KL is reported one by one.
NUM_STEPS = 40


def evaluate(run, part, writer, num_draws=None, max_bound=None):
    """Return everything reported about a part.

    Args:
        run: `Run`.
        part: `EncodedSentences`.
        writer: `Writer`.
        num_draws: Of the importance-weighted bound, or `None` for the run's.
        max_bound: Sentences that this is computed on, or `None` for the run's.
    """
    reports, kind = run.options.reports, MODELS[run.options.model]
    num_draws = reports.num_draws if num_draws is None else num_draws
    max_bound = reports.max_bound if max_bound is None else max_bound
    likelihood, codes = _likelihood(run, part, writer, kind)
    report = {"num_sentences": len(part), "likelihood": likelihood}
    # All over the part: the first ones may be of one document.
    chosen = part.rows(evenly(len(part), max_bound))
    # Without a latent variable every draw is the same, and exact.
    num_draws = num_draws if kind.latent else 1
    likelihood["importance_weighted"] = _importance_weighted(run, chosen, writer, num_draws)
    if kind.latent:
        report["code"] = {
            "active_units": metrics.active_units(codes["mean"]),
            "mutual_information": metrics.latent_mutual_information(codes["mean"], codes["log_scale"], seed=_SEED),
            "most_mutual_information": float(np.log(len(part))),
        }
        report["controls"] = _controls(run, chosen, writer)
    return report


def _likelihood(run, part, writer, kind):
    """Return the figures of all sentences, and the parameters of q(z_enc | x), (N, Z)."""
    totals, steps, counts = {}, np.zeros(NUM_STEPS), np.zeros(NUM_STEPS)
    codes, num_words = {"mean": [], "log_scale": []}, 0
    for number, (inputs, target) in enumerate(progress(part.batches(run.options), "likelihood")):
        given = inputs["source"], inputs["target_input"], target
        seed = random.fold_in(random.as_seed(_SEED), number)
        drawn = {name: x.numpy() for name, x in writer.drawn(*given, seed).items()}
        found = {
            "published": writer.published(*given, seed).numpy(),
            "reconstruction": drawn["log_likelihood"],
            "kl_code": drawn["kl_code"],
            "kl_steps": drawn["kl_steps"].sum(axis=1),
        }
        for name, x in found.items():
            totals[name] = totals.get(name, 0.0) + float(x.sum(dtype="float64"))
        lengths = np.count_nonzero(target, axis=1)
        num_words += int(np.sum(lengths - 1))
        width = min(NUM_STEPS, target.shape[1])
        steps[:width] += drawn["kl_steps"].sum(axis=0)[:width]
        counts[:width] += np.sum(np.arange(width) < lengths[:, None], axis=0)
        if kind.latent:
            for name, x in writer.posterior(inputs["source"]).items():
                codes[name].append(x.numpy())
    rows = len(part)
    num_tokens = num_words + rows
    bound = totals["reconstruction"] - totals["kl_code"] - totals["kl_steps"]
    report = {
        "num_words": num_words,
        "num_tokens": num_tokens,
        # As in the paper: neither a KL nor the end of a sentence, in the count, is in it.
        "published": {"nats": -totals["published"] / rows, "perplexity": perplexity(-totals["published"] / num_words)},
        "reconstruction": -totals["reconstruction"] / rows,
        "kl_code": totals["kl_code"] / rows if kind.latent else None,
        "kl_steps": totals["kl_steps"] / rows if kind.attention else None,
        "elbo": {"nats": -bound / rows, "perplexity": perplexity(-bound / num_tokens)},
    }
    if kind.attention:
        there = counts > 0
        report["kl_of_step"] = (steps[there] / counts[there]).tolist()
    return report, {name: np.concatenate(x) for name, x in codes.items()} if kind.latent else None


def _importance_weighted(run, part, writer, num_draws):
    """Return the bound of some sentences, beside the ELBO of the same draws."""
    values, single, num_tokens = [], [], 0
    for number, (inputs, target) in enumerate(progress(part.batches(run.options), f"{num_draws} draws")):
        given = inputs["source"], inputs["target_input"], target
        found = writer.log_weights(*given, num_draws, seed_of_batch(_SEED, number + 1)).numpy().astype("float64")
        values.append(logsumexp(found, axis=0) - np.log(num_draws))
        single.append(found.mean(axis=0))
        num_tokens += int(np.count_nonzero(target))
    total, elbo = -np.concatenate(values).sum(), -np.concatenate(single).sum()
    return {
        "num_sentences": len(part),
        "num_draws": num_draws,
        "nats": total / len(part),
        "perplexity": perplexity(total / num_tokens),
        "elbo_nats": elbo / len(part),
        "elbo_perplexity": perplexity(elbo / num_tokens),
    }


def _controls(run, part, writer):
    """Return by how much the reconstruction worsens, in nats a sentence, with the z_enc of another sentence, and with
    zeros, all other latents as they are: means and standard errors of the differences. `None` of a single sentence."""
    if len(part) < 2:
        return None
    batches = [(inputs["source"], inputs["target_input"], target) for inputs, target in part.batches(run.options)]
    codes = np.concatenate([writer.posterior(source)["mean"] for source, _, _ in batches])
    # Sentences of about one length are beside one another, so that it is not the length alone that the other one knows.
    others = {"shuffled": np.roll(codes, 1, axis=0), "zero": np.zeros_like(codes)}
    differences, start = {name: [] for name in others}, 0
    for given in progress(batches, "controls"):
        rows = slice(start, start + len(given[0]))
        own = writer.at(*given, codes[rows])["log_likelihood"].numpy()
        for name, other in others.items():
            differences[name].append(own - writer.at(*given, other[rows])["log_likelihood"].numpy())
        start = rows.stop
    found = {name: np.concatenate(x) for name, x in differences.items()}
    return {
        name: {"nats": float(x.mean()), "standard_error": float(x.std(ddof=1) / np.sqrt(len(x)))}
        for name, x in found.items()
    }


def looks(run, text):
    """Return the words of a sentence, and where the decoder looks for each and for the end, (T, S)."""
    models, words = run.models, run.codec.words
    source = words.encode(tf.constant([text]), run.options.text.max_length)
    target_input, target, _ = words.encode_targets(tf.constant([text]), run.options.text.max_length)
    memory, last = models.encode(source)
    decoded = models.decode(target_input, target, models.latent(last), memory, source, return_attention_scores=True)
    return words.tokenizer.token_lists([text])[0][: source.shape[1]], decoded["weights"][0].numpy()


def interpolated(run, writer, texts, num_steps=5):
    """Return the sentences between two, at equal distances of their z_enc."""
    z = writer.encode(tf.constant(texts))["mean"]
    shares = tf.linspace(0.0, 1.0, num_steps)[:, None]
    found = writer.write_from((1.0 - shares) * z[:1] + shares * z[1:])
    return [text.decode() for text in run.codec.words.decode(found).numpy()]
