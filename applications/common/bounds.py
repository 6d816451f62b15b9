"""Compute the evidence lower bound (ELBO) of a data split, and the terms of the ELBO."""

import math

import numpy as np

from applications.common.progress import progress


def bound_report(step, batches):
    """Return the evidence lower bound of all batches, and its terms.

    Args:
        step: Function of the inputs, the targets and the index of a batch. It returns three values: the log-likelihood
            of each example (B,) in nats; the number of tokens in the batch; and a dictionary from the name of each KL
            to its batch mean (`keras_vattn.divergences`).
        batches: Iterable of (inputs, targets).

    Returns:
        Dictionary. "reconstruction_nats", "kl_nats" (the sum of the KLs) and "elbo_nats" are in nats per example. "kl"
        is a dictionary that maps the name of each KL to its value. "elbo_perplexity" is a perplexity per token.
    """
    total, tokens, rows, divergences = 0.0, 0, 0, {}
    for number, (inputs, targets) in enumerate(progress(batches, "bound")):
        log_likelihood, num_tokens, added = step(inputs, targets, number)
        total += float(log_likelihood.numpy().sum(dtype="float64"))
        tokens += int(num_tokens)
        rows += len(log_likelihood)
        for name, value in added.items():
            divergences[name] = divergences.get(name, 0.0) + float(value) * len(log_likelihood)
    divergences = {name: value / rows for name, value in divergences.items()}
    kl = sum(divergences.values())
    elbo = total / rows - kl
    return {
        "reconstruction_nats": -total / rows,
        "kl": divergences,
        "kl_nats": kl,
        "elbo_nats": elbo,
        "elbo_perplexity": perplexity(-elbo * rows / tokens),
    }


def perplexity(nats):
    """Return exp(`nats`), the perplexity of a loss in nats per token; infinity above the float32 range."""
    return math.inf if nats > np.log(np.finfo("float32").max) else math.exp(nats)
