import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vattn import Additive, Bilinear, DotProduct, Score, scores

QUERY = np.random.default_rng(1).normal(size=(2, 3, 4)).astype("float32")
KEY = np.random.default_rng(2).normal(size=(2, 5, 4)).astype("float32")
WIDE_KEY = np.random.default_rng(3).normal(size=(2, 5, 6)).astype("float32")


def additive(layer, query, key):
    bias = 0.0 if layer.bias is None else layer.bias.numpy()
    hidden = np.tanh(
        (query @ layer.query_kernel.numpy())[:, :, None] + (key @ layer.key_kernel.numpy())[:, None] + bias
    )
    return np.einsum("btsu,u->bts", hidden, layer.scale.numpy()[:, 0])


def test_dot_product():
    expected = np.einsum("btd,bsd->bts", QUERY, KEY)
    np.testing.assert_allclose(DotProduct()(QUERY, KEY), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(DotProduct(scaled=True)(QUERY, KEY), expected / 2.0, rtol=1e-5, atol=1e-6)


def test_dot_product_needs_one_width():
    with pytest.raises(ValueError, match=r"bilinear or additive.*Received: query_shape=\(2, 3, 4\)"):
        DotProduct()(QUERY, WIDE_KEY)


def test_bilinear():
    layer = Bilinear()
    logits = layer(QUERY, WIDE_KEY)
    expected = np.einsum("btd,kd,bsk->bts", QUERY, layer.kernel.numpy(), WIDE_KEY)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("units", [None, 7])
def test_additive(units, use_bias):
    layer = Additive(units, use_bias)
    logits = layer(QUERY, WIDE_KEY)
    assert layer.scale.shape[0] == (units or 4)
    if use_bias:
        layer.bias.assign(np.linspace(-1.0, 1.0, layer.bias.shape[0]))
        logits = layer(QUERY, WIDE_KEY)
    np.testing.assert_allclose(logits, additive(layer, QUERY, WIDE_KEY), rtol=1e-5, atol=1e-6)


def test_concat_is_the_printed_formula():
    """The score is v^T tanh(W [q; k]) of Luong et al. 2015, with one W for the concatenated query and key."""
    layer = scores.get("concat")
    logits = layer(QUERY, WIDE_KEY)
    assert layer.bias is None and layer.scale.shape[0] == QUERY.shape[-1]
    kernel = np.concatenate([layer.query_kernel, layer.key_kernel])
    pairs = [np.broadcast_to(x, (2, 3, 5, x.shape[-1])) for x in (QUERY[:, :, None], WIDE_KEY[:, None])]
    expected = np.tanh(np.concatenate(pairs, axis=-1) @ kernel) @ layer.scale.numpy()
    np.testing.assert_allclose(logits, expected[..., 0], rtol=1e-5, atol=1e-6)


def test_names_with_preset_options():
    layer = scores.get("scaled_dot_product", name="own")
    assert isinstance(layer, DotProduct) and layer.scaled and layer.name == "own"
    assert scores.get(keras.saving.serialize_keras_object(layer)).scaled
    assert not scores.get("dot_product").scaled
    assert scores.get("additive").use_bias


@pytest.mark.parametrize("name", list(scores.SCORES))
def test_the_split_equals_the_call(name):
    layer = scores.get(name)
    logits = layer(QUERY, KEY)
    projected = layer.project_memory(tf.constant(KEY))
    by_step = [layer.score(tf.constant(QUERY[:, t : t + 1]), projected) for t in range(3)]
    np.testing.assert_allclose(tf.concat(by_step, axis=1), logits, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in scores.SCORES if name not in ("location", "local")])
def test_permuting_the_keys_permutes_the_logits(name):
    layer, order = scores.get(name), [3, 1, 0, 4, 2]
    np.testing.assert_allclose(layer(QUERY, KEY[:, order]), layer(QUERY, KEY).numpy()[..., order], rtol=1e-6)


def test_names_classes_configs_and_instances():
    instance = Additive(5)
    assert scores.get(instance) is instance
    assert isinstance(scores.get("bilinear"), Bilinear)
    assert isinstance(scores.get(DotProduct), DotProduct)
    with pytest.raises(ValueError, match=r'"dot_product", "bilinear", "additive".*Received: score="cosine"'):
        scores.get("cosine")
    with pytest.raises(ValueError, match="Received: score=3"):
        scores.get(3)


def test_a_custom_score():
    class Negative(Score):
        def build(self, query_shape, key_shape):
            pass

        def score(self, query, projected_keys):
            return -tf.matmul(query, projected_keys, transpose_b=True)

    np.testing.assert_allclose(Negative()(QUERY, KEY), -DotProduct()(QUERY, KEY).numpy(), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="does not implement `score`"):
        Score()(QUERY, KEY)
