"""Defines the test cases of the battery for MultiHeadAttention."""

from functools import partial

import numpy as np
import tensorflow as tf
from alignment_cases import named_rows
from battery_attention import AttentionCase, case_of_alignment
from battery_cases import BATCH, KL_OPTIONS, SAME_WIDTHS, SOURCE, STEPS
from keras import ops
from log_laplace import LogLaplace
from multi_head_cases import GATE
from twins import twin_divergence

from keras_vattn import GammaPrior, GumbelSoftmax, MultiHeadAttention, Weibull

HEADS = 2


class MultiHeadCase(AttentionCase):
    """A test case for MultiHeadAttention, whose KL and weights have an axis of heads."""

    def arrays(self, batch=BATCH, steps=STEPS, seed=0):
        arrays = super().arrays(batch, steps, seed)
        if "posterior_logits" in arrays:
            logits = np.random.default_rng(seed).normal(size=(batch, HEADS, steps, SOURCE))
            arrays["posterior_logits"] = tf.constant(logits, tf.float32)
        return arrays

    def built(self, **options):
        layer, arrays = self.make(**options), self.arrays()
        layer.build(arrays["query"].shape, arrays["value"].shape)
        return layer

    def expected_divergences(self, layer, arrays, masks=()):
        masks = dict(masks)
        valid = np.asarray(masks.pop("query_mask", True))
        posterior = layer.posterior_distribution(**arrays, **masks)
        prior = layer.prior_distribution(**arrays, **masks)
        divergences = twin_divergence(posterior, prior)  # (B, H, T, S) or (B, H, T)
        valid_keys = np.asarray(masks.get("value_mask", np.ones((divergences.shape[0], SOURCE), bool)))
        if divergences.ndim == 4:
            divergences = np.where(valid_keys[:, None, None], divergences, 0.0).sum(axis=-1)
        return np.where(valid & valid_keys.any(axis=1)[:, None], divergences.sum(axis=1), 0.0)

    def make_extreme(self, layer, arrays):
        scored = layer._scored((), arrays)
        layer.query_dense.kernel.assign(layer.query_dense.kernel * (1e4 / ops.max(ops.abs(scored.logits))))
        return arrays


class UnmaskedMultiHeadCase(MultiHeadCase):
    """A test case without a key mask, because Keras's softmax behaves differently if no key is valid."""

    key_mask = None


class ChunksCase(MultiHeadCase):
    """A test case with query chunks, for which no call computes all weights at once."""

    shows_weights = False


def _multi_head_case(name, case=MultiHeadCase, widths=SAME_WIDTHS, **options):
    make = partial(MultiHeadAttention, num_heads=HEADS, key_dim=3)
    return case_of_alignment(case, f"multi-head-{name}", make, widths, options)


MULTI_HEAD_CASES = [
    _multi_head_case(
        "softmax",
        UnmaskedMultiHeadCase,
        bad_options=(
            {"num_heads": 0},
            {"alignment": "hardmax"},
            {"prior": "contextual"},
            {"per_head_prior": True},
            *KL_OPTIONS,
        ),
    ),
    *(_multi_head_case(name, **options) for name, options in named_rows().items() if name != "softmax"),
    _multi_head_case(
        "weibull-per-head-gate-dropout",
        widths={"query": 4, "value": 6},
        alignment=Weibull(3.0),
        prior="contextual",
        per_head_prior=True,
        value_dim=5,
        **GATE,
        dropout=0.25,
    ),
    _multi_head_case(
        "query-chunks",
        ChunksCase,
        alignment="weibull",
        prior="contextual",
        dropout=0.25,
        query_chunk_size=2,
        bad_options=({"query_chunk_size": 0},),
    ),
    _multi_head_case("weibull-no-prior", alignment="weibull"),
    _multi_head_case(
        "gumbel-posterior", widths={**SAME_WIDTHS, "posterior_logits": SOURCE}, alignment=GumbelSoftmax(0.5)
    ),
    _multi_head_case(
        "log-laplace",
        alignment=LogLaplace(),
        prior="contextual",
        fits_float16=False,
        bad_options=(
            {"prior": "uniform"},
            {"alignment": "softmax"},
            {"flash_attention": True},
            {"prior": "fixed", "per_head_prior": True},
            {"prior": GammaPrior(num_heads=HEADS + 1)},
        ),
    ),
]
