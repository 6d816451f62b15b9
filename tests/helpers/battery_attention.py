"""Defines the test cases of the battery for Attention and the layers derived from it."""

from functools import partial

import keras
import numpy as np
from alignment_cases import named_rows
from battery_cases import DIFFERENT_WIDTHS, KL_OPTIONS, SAME_WIDTHS, SOURCE, WITH_POSTERIOR, Case, scale_logits
from log_laplace import LogLaplace
from twins import twin_divergence

from keras_vattn import (
    Attention,
    BayesianAttention,
    ContextualPrior,
    DeterministicAttention,
    DirichletAttention,
    DirichletPrior,
    FixedPrior,
    GaussianAttention,
    GumbelSoftmax,
    Local,
    LogNormal,
    Weibull,
)

# Options that describe a test case and are not arguments of the layer.
TRAITS = ("bad_options", "is_sparse", "estimates_divergence", "learns", "fits_float16")


class AttentionCase(Case):
    source_arguments = ("value",)
    query_mask = "query_mask"
    key_mask = "value_mask"

    def expected_divergences(self, layer, arrays, masks=()):
        masks = dict(masks)
        valid = masks.pop("query_mask", True)
        posterior = layer.posterior_distribution(**arrays, **masks)
        prior = layer.prior_distribution(**arrays, **masks)
        divergences = twin_divergence(posterior, prior)
        if divergences.ndim == 3:
            valid_keys = np.asarray(masks.get("value_mask", np.ones(divergences.shape[::2], bool)))
            divergences = np.where(valid_keys[:, None], divergences, 0.0).sum(axis=-1)
        divergences = np.where(valid, divergences, 0.0)
        if "value_mask" in masks:
            divergences = np.where(np.any(masks["value_mask"], axis=1)[:, None], divergences, 0.0)
        return divergences

    def make_extreme(self, layer, arrays):
        return scale_logits(layer.score, layer.score, arrays, "query", arrays["query"], arrays["value"])


def case_of_alignment(case, name, make, widths, options):
    """Return a test case for an attention. Options in TRAITS describe the case. All others go to the layer, which
    determines whether the case draws and has a KL."""
    traits = {name: options[name] for name in TRAITS if name in options}
    make = partial(make, **{name: x for name, x in options.items() if name not in TRAITS})
    layer, context = make(), options.get("context", "weighted_sum")
    return case(
        name,
        make,
        widths,
        divergence=layer.prior is not None or context == "gaussian" or "posterior_logits" in widths,
        draws=layer.is_stochastic or bool(layer.dropout),
        dropout=bool(layer.dropout),
        tempered=False,
        **traits,
    )


def _alignment_case(name, widths=DIFFERENT_WIDTHS, layer=Attention, **options):
    return case_of_alignment(AttentionCase, name, layer, widths, {"score": "bilinear", **options})


def _configuration(sublayer):
    """Return the config of a sublayer. Each layer creates its own copy, because a sublayer belongs to one layer."""
    return keras.saving.serialize_keras_object(sublayer)


def _local_attention(score, **options):
    # The window contains all keys.
    return Attention(Local(score, window=SOURCE, position="predictive"), **options)


TAU = keras.optimizers.schedules.ExponentialDecay(1.0, 10, 0.5)
ATTENTION_CASES = [
    AttentionCase(
        "attention-default",
        partial(Attention),
        SAME_WIDTHS,
        bad_options=({"score": "cosine"}, {"alignment": "hardmax"}, {"context": "mean"}, {"dropout": 1.0}, *KL_OPTIONS),
    ),
    AttentionCase("attention-dropout", partial(Attention, dropout=0.25), SAME_WIDTHS, draws=True, dropout=True),
    *(_alignment_case(name, **options) for name, options in named_rows().items()),
    AttentionCase("attention-additive", partial(Attention, score="additive"), DIFFERENT_WIDTHS),
    _alignment_case("weibull-local", layer=_local_attention, alignment="weibull", prior="contextual"),
    AttentionCase(
        "attention-dot-gaussian", partial(Attention, context="gaussian"), SAME_WIDTHS, divergence=True, draws=True
    ),
    AttentionCase(
        "deterministic-attention",
        partial(DeterministicAttention, score="additive", dropout=0.25),
        DIFFERENT_WIDTHS,
        draws=True,
        dropout=True,
        bad_options=({"score": "cosine"}, {"dropout": -0.1}),
    ),
    AttentionCase(
        "gaussian-attention-standard",
        partial(GaussianAttention, score="bilinear"),
        DIFFERENT_WIDTHS,
        divergence=True,
        draws=True,
        bad_options=(
            {"context_prior": "uniform"},
            {"prior": "mean"},
            {"temperature": -1.0},
            {"hidden_units": 0},
            *KL_OPTIONS,
        ),
    ),
    AttentionCase(
        "gaussian-attention-mean",
        partial(GaussianAttention, score="additive", context_prior="mean", hidden_units=3),
        DIFFERENT_WIDTHS,
        divergence=True,
        draws=True,
    ),
    _alignment_case("weibull-no-prior", alignment="weibull"),
    _alignment_case(
        "weibull-sampled-kl",
        alignment=Weibull(kl_estimator="sampled"),
        prior="contextual",
        estimates_divergence=True,
        bad_options=({"prior": "uniform"}, {"alignment": "softmax"}, {"warm_start_steps": -1}),
    ),
    _alignment_case(
        "weibull-own-family",
        alignment=Weibull(3.0, kl_of="weights"),
        prior=_configuration(ContextualPrior(hidden_units=3)),
        estimates_divergence=True,
    ),
    _alignment_case(
        "lognormal-own-family",
        alignment=LogNormal(1.0, kl_of="weights"),
        score="additive",
        prior=_configuration(FixedPrior()),
        fits_float16=False,
    ),
    _alignment_case(
        "lognormal-raw-fixed", alignment=LogNormal(0.7, "raw"), prior="fixed", score="additive", fits_float16=False
    ),
    _alignment_case("dirichlet-fixed", alignment="dirichlet", prior=_configuration(DirichletPrior(0.5))),
    _alignment_case("gumbel-straight-through-annealed", alignment=GumbelSoftmax(TAU, True)),
    _alignment_case("log-laplace", alignment=LogLaplace(), prior="contextual"),
    _alignment_case(
        "bayesian-attention",
        layer=BayesianAttention,
        distribution="lognormal",
        fits_float16=False,
        bad_options=(
            {"distribution": "gamma"},
            {"k": 0.0},
            {"sigma": -1.0},
            {"parameterization": "log"},
            {"kl_estimator": "monte_carlo"},
        ),
    ),
    _alignment_case(
        "dirichlet-attention",
        WITH_POSTERIOR,
        layer=DirichletAttention,
        bad_options=({"min_log_concentration": 11.0}, {"warm_start_steps": 0.5}),
    ),
]
