"""Inputs of CategoricalAttention, with and without masks, and how its tests call it."""

import numpy as np
import pytest
from latent_cases import BATCH, OBJECTIVES, SOURCE, STEPS, arrays

every_objective = pytest.mark.parametrize("objective", list(OBJECTIVES.values()), ids=list(OBJECTIVES))
# One of each kind: draws, an enumeration, some keys, a state, a relaxation, two bounds.
_KINDS = (
    "elbo-sample",
    "elbo-enumerate",
    "top_k",
    "elbo-moving-average",
    "elbo-gumbel",
    "importance-weighted",
    "wake-sleep",
)
objectives_by_kind = pytest.mark.parametrize("objective", [OBJECTIVES[name] for name in _KINDS], ids=_KINDS)
INPUTS = arrays()
MASKED = arrays(masked=True)


def call(layer, inputs=INPUTS, posterior=True, **options):
    logits = inputs["posterior_logits"] if posterior and layer.objective.uses_posterior else None
    return layer(
        inputs["query"], inputs["memory"], value_mask=inputs["memory_mask"], posterior_logits=logits, **options
    )


def valid_keys(inputs):
    return np.broadcast_to(inputs["memory_mask"][:, None], (BATCH, STEPS, SOURCE))
