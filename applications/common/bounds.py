"""Evidence lower bounds of a split of the data, with each term by name."""

import math

import numpy as np

from applications.common.progress import progress


def bound_report(step, batches):
    """Sum the evidence lower bound over batches.

    Args:
        step: Function of the inputs, the targets and the number of a batch. It returns the log-likelihood of each
            example (B,) in nats, under draws of the posterior or enumerated; the number of tokens of the batch; and a
            dictionary from names to the mean KL of its examples, as `keras_vattn.divergences` returns it.
        batches: Iterable of (inputs, targets).

    Returns:
        Dictionary, in nats per example: "reconstruction_nats", "kl" with each KL by name, their sum "kl_nats",
        "elbo_nats", and "elbo_perplexity".
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
    """Return exp(`nats`), for nats per token; infinity above the range of float32, the type of TensorBoard."""
    return math.inf if nats > np.log(np.finfo("float32").max) else math.exp(nats)
