"""Tests how `to_bayesian` or a user replaces the softmax of attention layers, in KerasHub models and custom layers."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from conversion_cases import TOKENS, bayesian_of, randomized
from hub_models import make_backbone

import keras_vattn
from keras_vattn import to_deterministic


@pytest.fixture(scope="module")
def llama():
    return randomized(make_backbone("LlamaBackbone"))


def tokens_of(model):
    return {x.name: TOKENS[x.name] for x in model.inputs}


@pytest.mark.slow
def test_export(llama, tmp_path):
    converted = bayesian_of(llama, prior="fixed")
    model = keras.Model(converted.input, keras.layers.Dense(2)(converted(converted.input)))
    tokens = tokens_of(model)
    model.export(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(tmp_path / "exported")
    served = exported.serve({key: tf.constant(x) for key, x in tokens.items()})
    np.testing.assert_allclose(served, model(tokens), rtol=1e-5, atol=1e-5)


def test_a_contextual_prior_needs_a_key_projection():
    for name in ("GPTNeoXBackbone", "GptOssBackbone"):
        with pytest.raises(ValueError, match=r"one sublayer that projects the keys.*use None, .*self_attention'"):
            bayesian_of(make_backbone(name))


@keras.saving.register_keras_serializable(package="tests")
class AttentionClassifier(keras.layers.Layer):
    """A layer whose softmax is over classes."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.heads = keras.layers.MultiHeadAttention(2, 4)
        self.classes, self.softmax = keras.layers.Dense(3), keras.layers.Softmax()

    def build(self, shape):
        self.heads.build(shape, shape)
        self.classes.build(shape)

    def call(self, x):
        return self.softmax(self.classes(self.heads(x, x)))


def test_a_softmax_over_classes_is_unchanged():
    inputs = keras.Input((5, 8))
    bayesian = bayesian_of(keras.Model(inputs, AttentionClassifier()(inputs)))
    assert [type(layer).__name__ for layer in keras_vattn.stochastic_layers(bayesian)] == ["MultiHeadAttention"]


def test_per_head_prior_raises(llama):
    with pytest.raises(ValueError, match=r"not support a prior per head. Received: per_head_prior=True, .*softmax"):
        bayesian_of(llama, prior="fixed", per_head_prior=True)


def test_a_summary_lists_the_selected_layers(llama):
    paths, lines = ["transformer_layer_0/self_attention", "transformer_layer_1/self_attention"], []
    for chosen in (None, *paths):
        keras_vattn.summary(bayesian_of(llama, prior=None, layers=chosen), lines.append)
    results = [line.split()[0] for line in lines]
    assert results == ["layer", *paths, "layer", paths[0], "layer", paths[1]]


def test_logged_names_contain_the_block(llama):
    names = [layer._logged_name for layer in keras_vattn.stochastic_layers(bayesian_of(llama, prior=None))]
    assert len(set(names)) == 2 and all(name.endswith("_softmax_kl") for name in names)


@keras.saving.register_keras_serializable(package="tests")
class SwappedHeads(keras.layers.MultiHeadAttention):
    """Keras attention with another softmax layer, which Keras calls if the weights are returned."""

    def build(self, query_shape, value_shape, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        self._softmax = keras_vattn.StochasticSoftmax("weibull", prior="fixed", seed=1, name="softmax")


def test_the_softmax_of_keras_s_multi_head_attention(tmp_path):
    x = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")
    mask = np.arange(5) < np.array([5, 3, 2])[:, None]
    plain, swapped = (kind(2, 4, name="heads") for kind in (keras.layers.MultiHeadAttention, SwappedHeads))
    reference = keras_vattn.MultiHeadAttention(2, 4, alignment="weibull", prior="fixed")
    for layer in (plain, swapped, reference):
        layer.build(x.shape, x.shape)
    for layer in (swapped, reference):
        layer.set_weights(plain.get_weights())
    options = {"value_mask": tf.constant(mask), "return_attention_scores": True}
    for results, expected in zip(swapped(x, x, **options), plain(x, x, **options), strict=True):
        np.testing.assert_allclose(results, expected, rtol=1e-5, atol=1e-6)
    reference(x, x, **options)
    np.testing.assert_allclose(swapped.losses[0], reference.losses[0], rtol=1e-5)
    assert (np.abs(swapped(x, x, training=True, **options)[1] - plain(x, x, **options)[1]) > 1e-3).any()
    inputs = keras.Input((5, 8))
    model = keras.Model(inputs, swapped(inputs, inputs, return_attention_scores=True))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(x)[0], model(x)[0], rtol=1e-5, atol=1e-6)
    assert len(keras_vattn.stochastic_layers(loaded)) == 1


@keras.saving.register_keras_serializable(package="tests")
class OneHeadAttention(keras.layers.Layer):
    """A custom attention layer with a softmax sublayer."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.softmax = keras.layers.Softmax()

    def call(self, x):
        return keras.ops.matmul(self.softmax(keras.ops.matmul(x, keras.ops.transpose(x, (0, 2, 1)))), x)


def test_user_attention(tmp_path):
    inputs = keras.Input((5, 8))
    model = keras.Model(inputs, OneHeadAttention(name="own")(inputs))
    x = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")
    bayesian = bayesian_of(model, prior=None)
    np.testing.assert_allclose(bayesian(x), model(x), rtol=1e-5, atol=1e-6)
    assert (np.abs(bayesian(x, training=True) - model(x)) > 1e-3).any()
    bayesian.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert len(keras_vattn.stochastic_layers(loaded)) == 1
    restored = to_deterministic(loaded)
    assert type(restored.layers[1]) is OneHeadAttention and not keras_vattn.stochastic_layers(restored)
    assert to_deterministic(bayesian).get_config() == model.get_config()


SCALE = 1.0


@keras.saving.register_keras_serializable(package="tests")
class PooledAttention(keras.layers.Layer):
    """A custom layer that reads a module constant, has a softmax over `axis`, and has gates that are not weights."""

    def __init__(self, axis=-1, **kwargs):
        super().__init__(**kwargs)
        self.axis = axis
        self.gates = self.add_weight(shape=(8,))

    def call(self, query, value):
        scores = SCALE * keras.ops.matmul(query, keras.ops.transpose(value, (0, 2, 1)))
        return keras.ops.matmul(keras.ops.softmax(scores, axis=self.axis), value) * keras.ops.softmax(self.gates)

    def compute_output_shape(self, query_shape, value_shape):
        return query_shape

    def get_config(self):
        return super().get_config() | {"axis": self.axis}


def model_around(attention, name="one_with_a_name_that_is_longer_than_paths_are"):
    inputs = keras.Input((5, 8))
    return keras.Model(inputs, attention(query=inputs, value=inputs), name=name)


ROWS = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")


@keras.saving.register_keras_serializable(package="tests")
class FusedAttention(keras.layers.Layer):
    """A custom layer that calls the fused attention function of Keras."""

    def call(self, query, value):
        query, value = query[:, :, None], value[:, :, None]
        return keras.ops.dot_product_attention(query, value, value)[:, :, 0]


def test_an_attention_that_calls_dot_product_attention():
    model = model_around(FusedAttention(name="fused"))
    bayesian = bayesian_of(model, prior=None)
    np.testing.assert_allclose(bayesian(ROWS), model(ROWS), rtol=1e-5, atol=1e-6)
    assert np.abs(bayesian(ROWS, training=True) - model(ROWS)).max() > 1e-3


def test_an_attention_without_a_softmax_over_keys_warns():
    """The attention's softmax is over axis 1 and the gates' softmax is over gates, so neither is over keys."""
    bayesian = bayesian_of(model_around(PooledAttention(axis=1, name="pooled")), prior=None)
    with pytest.warns(UserWarning, match=r"path='pooled', does not sample.*Exclude the layer with `layers`"):
        bayesian(ROWS)


def test_an_attention_called_by_keywords(tmp_path):
    """The layer is called by keywords. Rebuilding the model calls only its `compute_output_shape`."""
    model = model_around(PooledAttention(name="own"))
    bayesian, lines = bayesian_of(model, prior=None), []
    bayesian.save(tmp_path / "model.keras")
    for each in (bayesian, keras.saving.load_model(tmp_path / "model.keras"), keras.models.clone_model(bayesian)):
        assert each(ROWS).shape == (3, 5, 8)
    np.testing.assert_allclose(bayesian(ROWS), model(ROWS), rtol=1e-5, atol=1e-6)
    keras_vattn.summary(bayesian, lines.append)
    assert lines[1].split()[:2] == ["own", "Weibull"]


class Heads(keras.layers.MultiHeadAttention):
    """An attention that computes its own weights, although its class name and unused softmax suggest otherwise."""

    def _compute_attention(self, query, key, value, attention_mask=None, training=None, return_attention_scores=False):
        weights = keras.ops.softmax(keras.ops.einsum(self._dot_product_equation, key, query))
        return keras.ops.einsum(self._combine_equation, weights, value), weights


def test_user_attention_with_keras_projections():
    model = model_around(Heads(2, 4, name="heads"))
    bayesian = bayesian_of(model, prior=None)
    np.testing.assert_allclose(bayesian(ROWS), model(ROWS), rtol=1e-5, atol=1e-6)
    assert np.abs(bayesian(ROWS, training=True) - model(ROWS)).max() > 1e-3


@keras.saving.register_keras_serializable(package="tests")
class SingleHeadAttention(keras.layers.Layer):
    """Has a key projection, but no number of heads."""

    def build(self, shape):
        self.query, self.key = keras.layers.Dense(shape[-1]), keras.layers.Dense(shape[-1])
        for layer in (self.query, self.key):
            layer.build(shape)

    def call(self, x):
        scores = keras.ops.matmul(self.query(x), keras.ops.transpose(self.key(x), (0, 2, 1)))
        return keras.ops.matmul(keras.ops.softmax(scores), x)


def test_a_contextual_prior_needs_a_number_of_heads():
    inputs = keras.Input((None, 8))
    model = keras.Model(inputs, SingleHeadAttention()(inputs))
    with pytest.raises(ValueError, match=r"and one of the attributes.*num_heads.*SingleHeadAttention"):
        keras_vattn.to_bayesian(model, layers=None, prior="contextual")
    assert keras_vattn.to_bayesian(model, layers=None, prior="fixed")(np.ones((2, 5, 8))).shape == (2, 5, 8)
