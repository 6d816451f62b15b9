"""Defines the test cases of the battery for AttentionDecoder, with every kind of attention and without attention."""

from functools import partial

import numpy as np
import tensorflow as tf
from battery_attention import AttentionCase
from battery_cases import BATCH, SOURCE, STEPS, Case, scale_logits
from keras import ops, tree
from log_laplace import LogLaplace
from tensorflow_probability.python import distributions as tfd

from keras_vattn import (
    Attention,
    AttentionDecoder,
    BayesianAttention,
    DeterministicAttention,
    DirichletAttention,
    GaussianAttention,
    GaussianLatent,
    GRUCell,
    Local,
    LocationSensitive,
    PredictedContext,
    StochasticDecoder,
)
from keras_vattn.recurrent import CELLS, ExpectedFeeding


class DecoderCase(Case):
    source_arguments = ("memory",)
    query_mask = "inputs_mask"
    has_loop = True

    @property
    def key_mask(self):
        return "memory_mask" if "memory" in self.widths else None

    def context(self, result):
        return result["context"]

    def noisy(self, result):
        return result["context" if "context" in result and self.noise_in_attention else "hidden"]

    def queries(self, layer, arrays, memory_mask=None):
        """Return the queries of the attention at all steps of inference, (B, T, units), computed with `step`."""
        memory = layer.prepare_memory(arrays["memory"], memory_mask)
        state = layer.start(arrays["inputs"].shape[0], memory)
        queries = []
        for inputs in tf.unstack(arrays["inputs"], axis=1):
            before = state["cells"][0]
            outputs, state = layer.step(inputs, state, memory)
            queries.append(before if layer.query == "previous" else outputs["hidden"])
        return ops.stack(queries, axis=1)

    def expected_divergences(self, layer, arrays, masks=()):
        masks = dict(masks)
        queries = self.queries(layer, arrays, masks.get("memory_mask"))
        inner = {"query_mask": masks["inputs_mask"]} if "inputs_mask" in masks else {}
        if "memory_mask" in masks:
            inner["value_mask"] = masks["memory_mask"]
        inner_arrays = {"query": queries, "value": arrays["memory"]}
        if "posterior_logits" in arrays:
            inner_arrays["posterior_logits"] = arrays["posterior_logits"]
        return AttentionCase.expected_divergences(self, layer.attention, inner_arrays, inner)

    @property
    def has_logits(self):
        return "memory" in self.widths

    def make_extreme(self, layer, arrays):
        score = layer.attention.score
        queries = self.queries(layer, arrays)
        return scale_logits(score, score, arrays, "memory", queries, arrays["memory"])


def _decoder(attention=None, units=6, **options):
    def make(seed=None, **more):
        inner = None if attention is None else attention(seed=seed)
        return AttentionDecoder(units, inner, seed=seed, **{**options, **more})

    return make


def _decoder_case(
    name,
    attention=None,
    memory=5,
    divergence=False,
    posterior=False,
    tempered=True,
    draws=False,
    learns=True,
    fits_float16=True,
    **options,
):
    dropout = bool(options.get("dropout")) or (attention is not None and bool(attention(seed=0).dropout))
    widths = {"inputs": 4} if attention is None else {"inputs": 4, "memory": memory}
    if posterior:
        widths["posterior_logits"] = SOURCE
    return DecoderCase(
        f"decoder-{name}",
        _decoder(attention, **options),
        widths,
        divergence=divergence,
        draws=draws or divergence or dropout,
        tempered=tempered,
        dropout=dropout,
        noise_in_attention=not options.get("dropout"),
        learns=learns,
        # A dot product reaches large logits only with large memory values, whose gradients exceed float16.
        fits_float16=fits_float16 and "dot" not in name,
        bad_options=({"cell": "rnn"}, {"query": "next"}, {"feeding": "teacher"}, {"num_layers": 0}, {"dropout": 1.0}),
    )


class StochasticDecoderCase(Case):
    """A test case for StochasticDecoder. Its KL is the KL of z_t or of c~_t."""

    source_arguments = ("memory",)
    query_mask = "inputs_mask"
    key_mask = "memory_mask"
    has_loop = True

    def context(self, result):
        return result["context"]

    def noisy(self, result):
        return result["latent"]

    def expected_divergences(self, layer, arrays, masks=()):
        decoded = layer(**arrays, **dict(masks), return_distributions=True)
        if layer.informed:
            pair = decoded["latent_posterior"], decoded["latent_prior"]
        else:
            p = layer.prediction.parameters(decoded["latent"])
            pair = {**p, "mean": decoded["context"]}, p
        q, p = (tfd.MultivariateNormalDiag(ops.cast(x["mean"], "float32"), ops.exp(x["log_scale"])) for x in pair)
        return np.where(dict(masks).get("inputs_mask", True), tfd.kl_divergence(q, p), 0.0)

    def make_extreme(self, layer, arrays):
        score, hidden = layer.attention.score, layer(**arrays)["hidden"]
        queries = ops.pad(hidden, [[0, 0], [1, 0], [0, 0]])[:, :-1]
        return scale_logits(score, score, arrays, "memory", queries, arrays["memory"])


def _stochastic_decoder(score="additive", seed=None, predicted=None, **options):
    latent = GaussianLatent(2, seed=seed)
    prediction = PredictedContext(5, seed=seed, **(predicted or {"kl_weight": 0.0}))
    return StochasticDecoder(6, latent, Attention(score), prediction, **options)


class CellCase(Case):
    """A test case for a recurrent cell. A call is one step: it takes (B, D) and returns the output and the states."""

    def arrays(self, batch=BATCH, steps=STEPS, seed=0):
        return {name: x[:, 0] for name, x in super().arrays(batch, steps, seed).items()}

    def outputs(self, result):
        return tree.flatten(result)

    def known_shapes(self, result):
        return tree.map_structure(lambda x: tuple(x.shape), result)

    def make_extreme(self, layer, arrays):
        layer.kernel.assign(layer.kernel * (1e4 / ops.max(ops.abs(ops.matmul(arrays["inputs"], layer.kernel)))))
        return arrays


def _location_sensitive(location, seed=None):
    score = LocationSensitive(filters=3, kernel_size=4, location=location)
    return DeterministicAttention(score, dropout=0.25, seed=seed)


def _local(seed=None):
    # At the last step, the window still contains the only key of a source of length one.
    return GaussianAttention(Local("dot_product", window=8), seed=seed)


DECODER_CASES = [
    _decoder_case(
        "lstm-additive-gaussian-current-sampled",
        partial(GaussianAttention, score="additive"),
        divergence=True,
    ),
    _decoder_case(
        "gru-bilinear-mean-current-expected",
        partial(GaussianAttention, score="bilinear", context_prior="mean"),
        divergence=True,
        cell="gru",
        feeding="expected",
    ),
    _decoder_case(
        "lstm-additive-previous-residual-stack",
        partial(DeterministicAttention, score="additive"),
        query="previous",
        num_layers=3,
        residual=True,
        dropout=0.25,
    ),
    _decoder_case("lstm-residual-stack", num_layers=2, residual=True, dropout=0.25),
    *(_decoder_case(name, cell=name) for name in CELLS),
    _decoder_case(
        "lstm-weibull-current-sampled",
        partial(BayesianAttention, score="additive"),
        divergence=True,
        tempered=False,
    ),
    _decoder_case(
        "gru-dirichlet-posterior-previous-expected",
        partial(DirichletAttention, score="bilinear"),
        divergence=True,
        posterior=True,
        tempered=False,
        cell="gru",
        query="previous",
        feeding="expected",
    ),
    _decoder_case(
        "lstm-gumbel-previous-sampled",
        partial(Attention, score="bilinear", alignment="gumbel_softmax", prior="fixed"),
        divergence=True,
        tempered=False,
        query="previous",
    ),
    _decoder_case(
        "max-out-lstm-one-hot-previous-sampled",
        partial(Attention, score="bilinear", alignment="hard"),
        draws=True,
        learns=False,
        tempered=False,
        cell="max_out_lstm",
        query="previous",
    ),
    _decoder_case(
        "lstm-log-laplace-off",
        partial(Attention, score="bilinear", alignment=LogLaplace(), prior="contextual"),
        divergence=True,
        fits_float16=False,
        tempered=False,
        feeding="off",
    ),
    # The state of the score is the previous weights; "cumulative" differs in one sum, which tests/recurrent checks.
    _decoder_case(
        "lstm-location-sensitive-off",
        partial(_location_sensitive, "previous"),
        query="previous",
        feeding="off",
    ),
    _decoder_case("gru-dot-local-gaussian", _local, memory=6, divergence=True, cell="gru"),
    _decoder_case(
        "gru-class-previous-expected-stack",
        partial(GaussianAttention, score="additive"),
        divergence=True,
        cell=GRUCell,
        num_layers=2,
        query="previous",
        feeding=ExpectedFeeding,
    ),
    StochasticDecoderCase(
        "stochastic-decoder",
        partial(_stochastic_decoder),
        {"inputs": 4, "memory": 5},
        divergence=True,
        draws=True,
        bad_options=({"cell": "rnn"},),
    ),
    StochasticDecoderCase(
        "stochastic-decoder-context",
        partial(_stochastic_decoder, predicted={"informed": True}, informed=False),
        {"inputs": 4, "memory": 5},
        divergence=True,
        draws=True,
    ),
    *(
        CellCase(f"{name}-cell", partial(cell, units=6), {"inputs": 4, "context": 5}, bad_options=({"units": 0},))
        for name, cell in CELLS.items()
    ),
    CellCase("gru-cell-no-context", partial(GRUCell, units=6), {"inputs": 4}),
]
