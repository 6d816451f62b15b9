"""The alignment as a mixin for a multi-head attention with a `call` of its own."""

import keras
import numpy as np
import pytest
from keras_hub.layers import CachedMultiHeadAttention
from multi_head_cases import copy_keras_weights

from keras_vattn.layers.multi_head_mixin import MultiHeadMixin

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(2, 4, 6)).astype("float32")
CAUSAL = np.tril(np.ones((1, 4, 4), bool))


@keras.saving.register_keras_serializable(package="tests")
class BayesianCachedAttention(MultiHeadMixin, CachedMultiHeadAttention):
    pass


def pair(**options):
    layers = CachedMultiHeadAttention(2, 3), BayesianCachedAttention(2, 3, **options)
    for layer in layers:
        layer.build(X.shape, X.shape)
    copy_keras_weights(layers[1], layers[0])
    return layers


@pytest.mark.parametrize("alignment", ["softmax", "weibull"])
def test_inference_is_that_of_the_original(alignment):
    plain, bayesian = pair(alignment=alignment)
    np.testing.assert_allclose(bayesian(X, X, attention_mask=CAUSAL), plain(X, X, attention_mask=CAUSAL), atol=1e-6)


def test_the_cache_of_its_own_call_goes_on_working():
    plain, bayesian = pair(alignment="weibull", prior="contextual")
    cache = np.zeros((2, 2, 4, 2, 3), "float32")
    outputs = []
    for layer in (plain, bayesian):
        state = keras.ops.convert_to_tensor(cache)
        for step in range(4):
            mask = (np.arange(4) <= step)[None, None]
            output, state = layer(
                X[:, step : step + 1], X[:, step : step + 1], attention_mask=mask, cache=state, cache_update_index=step
            )
        outputs.append(output)
    np.testing.assert_allclose(outputs[1], outputs[0], atol=1e-6)
    np.testing.assert_allclose(outputs[1], plain(X, X, attention_mask=CAUSAL)[:, 3:], atol=1e-6)


def test_training_draws_and_has_a_divergence():
    _, bayesian = pair(alignment="weibull", prior="contextual", kl_weight=0.5)
    draws = [bayesian(X, X, attention_mask=CAUSAL, training=True) for _ in range(2)]
    assert np.any(draws[0] != draws[1])
    assert len(bayesian.losses) == 1
    copy = BayesianCachedAttention.from_config(bayesian.get_config())
    assert (type(copy.alignment), copy.kl_weight) == (type(bayesian.alignment), 0.5)


def test_flash_attention_is_refused():
    with pytest.raises(ValueError, match=r"Flash attention computes no weights.*Received: flash_attention=True"):
        BayesianCachedAttention(2, 3, alignment="weibull", flash_attention=True)
