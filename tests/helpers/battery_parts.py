"""Defines the test cases of the battery for scores, contexts, GaussianLatent, dropouts and the LSTM."""

from functools import partial

import numpy as np
import tensorflow as tf
from battery_cases import BATCH, KL_OPTIONS, SOURCE, STEPS, VOCABULARY, Case, scale_logits
from keras import ops
from twins import twin_divergence

from keras_vattn import (
    Additive,
    Bilinear,
    DotProduct,
    GaussianContext,
    GaussianLatent,
    Local,
    Location,
    PredictedContext,
    StochasticSoftmax,
    WeightedSum,
    WordDropout,
)
from keras_vattn.fast import LSTM, Dropout


class ScoreCase(Case):
    source_arguments = ("key",)

    def make_extreme(self, layer, arrays):
        return scale_logits(layer, layer, arrays, "query", arrays["query"], arrays["key"])


class PositionScoreCase(ScoreCase):
    """A test case for a score that can hide keys, but hides none here."""

    def dtypes(self, layer, result):
        return "float32"


class ContextCase(Case):
    source_arguments = ("value",)
    has_logits = False

    def arrays(self, batch=BATCH, steps=STEPS, seed=0):
        arrays = super().arrays(batch, steps, seed)
        return {"weights": tf.nn.softmax(arrays["weights"]), "value": arrays["value"]}


class LatentCase(Case):
    has_logits = False
    query_mask = "mask"

    def expected_divergences(self, layer, arrays, masks=()):
        inputs = arrays["inputs"]
        valid = dict(masks).get("mask", True)
        divergences = twin_divergence(layer.posterior_distribution(inputs), layer.prior_distribution(inputs))
        return np.where(valid, divergences, 0.0)

    def expected_loss(self, layer, arrays, masks=()):
        if layer.free_nats:
            divergences = self.expected_divergences(layer, arrays, masks)
            return np.maximum(divergences.sum(axis=1), layer.free_nats).mean()
        if not layer.free_bits:
            return super().expected_loss(layer, arrays, masks)
        inputs = arrays["inputs"]
        posterior, prior = layer.posterior_distribution(inputs), layer.prior_distribution(inputs)
        by_dimension = twin_divergence(posterior.distribution, prior.distribution)
        valid = np.broadcast_to(dict(masks).get("mask", True), by_dimension.shape[:-1])
        average = by_dimension[valid].mean(axis=0)
        return np.maximum(average, layer.free_bits).sum() * valid.sum() / valid.shape[0]


class SoftmaxCase(Case):
    source_arguments = ("key",)

    def expected_divergences(self, layer, arrays, masks=()):
        divergences = twin_divergence(layer.posterior_distribution(**arrays), layer.prior_distribution(**arrays))
        return divergences.sum(axis=-1) if divergences.ndim == 3 else divergences

    def make_extreme(self, layer, arrays):
        return {**arrays, "inputs": arrays["inputs"] * (1e4 / ops.max(ops.abs(arrays["inputs"])))}


class VectorLatentCase(LatentCase):
    query_mask = None

    def arrays(self, batch=BATCH, steps=STEPS, seed=0):
        return {name: x[:, 0] for name, x in super().arrays(batch, steps, seed).items()}


class PredictedCase(Case):
    has_logits = False


class WordsCase(Case):
    has_logits = False

    def arrays(self, batch=BATCH, steps=STEPS, seed=0):
        ids = np.random.default_rng(seed).integers(3, VOCABULARY, size=(batch, steps))
        return {"inputs": tf.constant(ids, tf.int32)}

    def floats(self, result):
        return [ops.cast(result, "float32")[..., None]]

    def dtypes(self, layer, result):
        return "int32"


class EntriesCase(Case):
    has_logits = False


class EncoderCase(EntriesCase):
    query_mask = "mask"
    has_loop = True


COMPONENT_CASES = [
    ScoreCase("dot-product", partial(DotProduct), {"query": 4, "key": 4}),
    ScoreCase("dot-product-scaled", partial(DotProduct, scaled=True), {"query": 4, "key": 4}),
    ScoreCase("bilinear", partial(Bilinear), {"query": 4, "key": 6}),
    ScoreCase("additive", partial(Additive, units=7), {"query": 4, "key": 6}, bad_options=({"units": 0},)),
    PositionScoreCase(
        "location", partial(Location, max_length=7), {"query": 4, "key": 6}, bad_options=({"max_length": 0},)
    ),
    PositionScoreCase(
        "local-predictive",
        partial(Local, inner="bilinear", window=6, position="predictive"),
        {"query": 4, "key": 6},
        bad_options=({"window": 0}, {"position": "next"}, {"inner": "cosine"}),
    ),
    ContextCase("weighted-sum", partial(WeightedSum), {"weights": SOURCE, "value": 6}),
    ContextCase(
        "gaussian-context-standard",
        partial(GaussianContext),
        {"weights": SOURCE, "value": 6},
        # The test cases of the attention layers check that the context learns.
        learns=False,
        bad_options=({"prior": "uniform"}, {"temperature": -1.0}, {"hidden_units": 0}),
    ),
    ContextCase(
        "gaussian-context-mean",
        partial(GaussianContext, prior="mean", hidden_units=3, temperature=0.5),
        {"weights": SOURCE, "value": 6},
        learns=False,
    ),
    SoftmaxCase(
        "stochastic-softmax",
        partial(StochasticSoftmax, prior="fixed"),
        {"inputs": SOURCE},
        divergence=True,
        draws=True,
        tempered=False,
        bad_options=({"prior": "hardmax"}, {"alignment": "hardmax"}, {"axis": 1}, *KL_OPTIONS),
    ),
    SoftmaxCase(
        "stochastic-softmax-contextual",
        partial(StochasticSoftmax, prior="contextual"),
        {"inputs": SOURCE, "key": 6},
        divergence=True,
        draws=True,
        tempered=False,
    ),
    SoftmaxCase(
        "stochastic-softmax-posterior",
        partial(StochasticSoftmax, alignment="dirichlet"),
        {"inputs": SOURCE, "posterior_logits": SOURCE},
        divergence=True,
        draws=True,
        tempered=False,
    ),
    VectorLatentCase(
        "latent",
        partial(GaussianLatent, units=3),
        {"inputs": 4},
        divergence=True,
        draws=True,
        bad_options=({"units": 0}, {"temperature": -1.0}, {"free_bits": -1.0}, *KL_OPTIONS),
    ),
    VectorLatentCase(
        "latent-free-bits", partial(GaussianLatent, units=3, free_bits=0.3), {"inputs": 4}, divergence=True, draws=True
    ),
    LatentCase(
        "latent-free-nats", partial(GaussianLatent, units=3, free_nats=3.0), {"inputs": 4}, divergence=True, draws=True
    ),
    LatentCase("latent-sequence", partial(GaussianLatent, units=3), {"inputs": 4}, divergence=True, draws=True),
    PredictedCase(
        "predicted-context",
        partial(PredictedContext, units=3),
        {"inputs": 4},
        draws=True,
        bad_options=(
            {"units": 0},
            {"temperature": -1.0},
            {"kl_weight": -1.0},
            {"kl_annealing": 0.5},
            {"min_log_scale": 9.0},
        ),
    ),
    WordsCase(
        "word-dropout",
        partial(WordDropout, rate=0.5, replacement_id=1, protected_ids=(0,)),
        {"inputs": None},
        draws=True,
        dropout=True,
        bad_options=({"rate": 1.5},),
    ),
    EntriesCase(
        "dropout", partial(Dropout, rate=0.5), {"inputs": 4}, draws=True, dropout=True, bad_options=({"rate": 1.5},)
    ),
    # Keras implements the dropout of this layer and checks its options.
    EncoderCase("lstm", partial(LSTM, units=5, return_sequences=True), {"sequences": 4}),
]
