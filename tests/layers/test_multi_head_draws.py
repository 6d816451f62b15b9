"""Tests that MultiHeadAttention samples heads, queries and examples independently, and applies dropout afterwards."""

import numpy as np
import pytest
from multi_head_cases import (
    GENERATOR,
    STOCHASTIC,
)

import keras_vattn
from keras_vattn import MultiHeadAttention


@pytest.mark.parametrize("alignment", list(STOCHASTIC))
def test_heads_queries_and_examples_have_independent_draws(alignment):
    """Inputs are equal, so only noise makes weights differ. Correlations are within 5 standard errors of 0."""
    layer = MultiHeadAttention(4, 3, alignment=alignment, seed=3)
    query, value = np.ones((5, 6, 2), "float32"), np.ones((5, 50, 2), "float32")
    _, weights = layer(query, value, return_attention_scores=True, training=True)
    rows = np.log(np.maximum(weights.numpy(), 1e-30)).reshape(-1, 50)
    correlations = np.corrcoef(rows)[np.triu_indices(len(rows), 1)]
    assert np.abs(correlations).max() < 5.0 / np.sqrt(50)


def test_dropout_falls_on_the_drawn_weights():
    """A fraction of 0.3 of the weights is dropped, within 4 standard errors; the others are divided by 0.7; seed 5."""
    layer = MultiHeadAttention(1, 25, value_dim=25, dropout=0.3, alignment="weibull", use_bias=False, seed=5)
    query = GENERATOR.normal(size=(50, 8, 25)).astype("float32")
    value = np.broadcast_to(np.eye(25, dtype="float32"), (50, 25, 25))
    layer.build(query.shape, value.shape)
    layer.value_dense.kernel.assign(np.eye(25)[:, None])
    layer.output_dense.kernel.assign(np.eye(25)[None])
    outputs, weights = layer(query, value, return_attention_scores=True, training=True)
    outputs, weights = outputs.numpy(), weights.numpy()[:, 0]
    dropped = outputs == 0.0
    assert abs(dropped.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / dropped.size)
    np.testing.assert_allclose(outputs[~dropped], weights[~dropped] / 0.7, rtol=1e-5)
    with keras_vattn.posterior_draws(layer):
        outputs, weights = layer(query, value, return_attention_scores=True)
    np.testing.assert_allclose(outputs, weights[:, 0], rtol=1e-5)
