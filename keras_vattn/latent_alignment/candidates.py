"""Select candidate source positions for the likelihood, and compute their contexts and probabilities."""

import math

import tensorflow as tf
from keras import ops

from keras_vattn import random
from keras_vattn.latent_alignment.log_probabilities import (
    LOG_ZERO,
    draw,
    gather_entries,
    is_possible,
    most_probable,
    renormalised,
)
from keras_vattn.support.products import matmul


def make_candidates(pair, objective, alignment, seed, with_baseline):
    """Return the contexts of K candidates, (B, T, K, D), and their log p and log q, (B, T, K).

    If q is p, log q is `None`.

    Args:
        pair: The `Pair` of objective and estimator for this call.
        objective: The `LatentObjective` of the layer.
        alignment: Dictionary with the keys `"value"`, (B, S, D); `"keys"`, a `Keys`; `"log_prior"`, (B, T, S); and
            `"log_posterior"`, (B, T, S) or `None`.
        seed: int32 tensor (2,), used if the estimator samples positions or noise.
        with_baseline: Whether to append the soft baseline, the expected value under p, as context K + 1.
    """
    value, keys, log_prior, log_posterior = (
        alignment[name] for name in ("value", "keys", "log_prior", "log_posterior")
    )
    source = log_prior if pair.objective == "hard" or log_posterior is None else log_posterior
    if pair.estimator == "expected":
        return mixture(ops.exp(log_prior), value)
    if pair.estimator == "gumbel":
        return mixture(keys.softmax((source + random.gumbel(ops.shape(source), seed)) / objective.tau), value)
    if pair.estimator == "enumerate":
        return all_values(value, keys.valid, ops.shape(log_prior)), log_prior, log_posterior
    if pair.estimator == "top_k":
        index = most_probable(log_prior, objective.top_k)
    else:
        index = draw(source, objective.num_samples, seed)
    candidates, chosen_prior = tf.gather(value, index, batch_dims=1), gather_entries(log_prior, index)
    if keys.valid is not None:
        candidates = ops.where(is_possible(chosen_prior)[..., None], candidates, ops.zeros_like(candidates))
    if with_baseline:
        soft, _, _ = mixture(ops.exp(log_prior), value)
        candidates = ops.concatenate([candidates, soft], axis=2)
    chosen_prior = renormalised(chosen_prior) if pair.estimator == "top_k" else chosen_prior
    return candidates, chosen_prior, None if log_posterior is None else gather_entries(log_posterior, index)


def prediction_log_weights(pair, log_prior, log_posterior, with_baseline):
    """Return the log weights of the candidates in a prediction, float32 (B, T, K) or (B, T, K + 1).

    Args:
        pair: The `Pair` of objective and estimator for this call.
        log_prior: log p of the candidates, (B, T, K).
        log_posterior: log q of the candidates, (B, T, K), or `None`.
        with_baseline: Whether to append `LOG_ZERO`, the log weight of the baseline.
    """
    if pair.estimator != "sample":
        return log_prior
    if log_posterior is None or pair.objective == "hard":
        log_weights = ops.full_like(log_prior, -math.log(log_prior.shape[-1]))
    else:
        log_weights = ops.log_softmax(log_prior - log_posterior, axis=-1)
    if not with_baseline:
        return log_weights
    return ops.concatenate([log_weights, ops.full_like(log_weights[..., :1], LOG_ZERO)], axis=-1)


def mixture(weights, value):
    """Return a single candidate, sum_s weights[t, s] value[s], (B, T, 1, D), with log p = 0, and `None` for log q."""
    weights = ops.cast(weights, value.dtype)
    return matmul(weights, value)[:, :, None], ops.zeros_like(weights[..., :1], "float32"), None


def all_values(value, mask, shape):
    """Return the values of all keys for each query, (B, T, S, D), with 0 for masked keys."""
    value = value[:, None]
    if mask is not None and mask.shape[1] != 1:
        value = ops.where(mask[..., None], value, ops.zeros_like(value))
    return ops.broadcast_to(value, (*shape, value.shape[-1]))
