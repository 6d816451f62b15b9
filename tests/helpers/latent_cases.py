"""Provides a small model with a latent alignment, and inputs of the model."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import keras_vattn
from keras_vattn import LatentObjective

BATCH, STEPS, SOURCE, WIDTH, VOCABULARY = 4, 3, 5, 6, 11

OBJECTIVES = {
    "soft": LatentObjective("soft"),
    "marginal": LatentObjective("marginal"),
    "top_k": LatentObjective("marginal", "top_k", top_k=2),
    "elbo-sample": LatentObjective("elbo", "sample"),
    "elbo-sample-3": LatentObjective("elbo", "sample", num_samples=3, baseline=None),
    "elbo-moving-average": LatentObjective("elbo", "sample", baseline="moving_average"),
    "elbo-enumerate": LatentObjective("elbo", "enumerate"),
    "elbo-gumbel": LatentObjective("elbo", "gumbel", tau=0.5),
    "hard-sample": LatentObjective("hard", "sample"),
    "hard-enumerate": LatentObjective("hard", "enumerate", inference="marginal/enumerate"),
    "importance-weighted": LatentObjective("importance_weighted", num_samples=3, inference="elbo/enumerate"),
    "wake-sleep": LatentObjective("wake_sleep", num_samples=3),
}


def arrays(batch=BATCH, steps=STEPS, masked=False):
    """Return NumPy inputs of `run`. With `masked`, keys and words are padded, and one example has no valid key."""
    generator = np.random.default_rng(0)
    key_lengths = np.resize([SOURCE, 3, 0, 1], batch) if masked else np.full(batch, SOURCE)
    word_lengths = np.resize([steps, max(steps - 1, 1), steps, 1], batch) if masked else np.full(batch, steps)
    words = generator.integers(1, VOCABULARY, size=(batch, steps))
    return {
        "query": generator.normal(size=(batch, steps, WIDTH)).astype("float32"),
        "memory": generator.normal(size=(batch, SOURCE, WIDTH)).astype("float32"),
        "memory_mask": np.arange(SOURCE) < key_lengths[:, None],
        "posterior_logits": generator.normal(size=(batch, steps, SOURCE)).astype("float32"),
        "targets": np.where(np.arange(steps) < word_lengths[:, None], words, 0).astype("int32"),
    }


def layers(objective):
    """Return the layers of the model by name: attention, projections, word log-likelihood and bound."""
    return {
        "attention": keras_vattn.CategoricalAttention("additive", objective, seed=1, name="attention"),
        "value": keras.layers.Dense(WIDTH, name="value_projection"),
        "query": keras.layers.Dense(WIDTH, name="query_projection"),
        "words": keras_vattn.TokenLogLikelihood(VOCABULARY, ignore_class=0, name="words"),
        "bound": keras_vattn.LatentLogLikelihood(objective, name="bound"),
    }


def run(parts, inputs, posterior=True, **call):
    """Return the bound of the targets, (B, T), and the outputs of the attention, a dictionary."""
    logits = inputs["posterior_logits"] if posterior and parts["attention"].objective.uses_posterior else None
    mask = ops.not_equal(inputs["targets"], 0)
    latent = parts["attention"](
        inputs["query"],
        parts["value"](inputs["memory"]),
        query_mask=mask,
        value_mask=inputs["memory_mask"],
        posterior_logits=logits,
        **call,
    )
    hidden = emit(parts, inputs, latent)
    log_likelihood = parts["words"](hidden, inputs["targets"])
    bound = parts["bound"](log_likelihood, latent["log_prior"], latent.get("log_posterior"), **call)
    return bound, latent


def emit(parts, inputs, latent):
    """Return the hidden state of every candidate, (B, T, K, D)."""
    return ops.tanh(parts["query"](inputs["query"])[:, :, None] + latent["candidates"])


def tensors(inputs):
    return {name: tf.constant(x) for name, x in inputs.items()}


INPUTS = arrays()
MASKED = arrays(masked=True)


def call(layer, inputs=INPUTS, posterior=True, **options):
    logits = inputs["posterior_logits"] if posterior and layer.objective.uses_posterior else None
    return layer(
        inputs["query"], inputs["memory"], value_mask=inputs["memory_mask"], posterior_logits=logits, **options
    )


def valid_keys(inputs):
    return np.broadcast_to(inputs["memory_mask"][:, None], (BATCH, STEPS, SOURCE))
