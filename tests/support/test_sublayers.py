"""Tests that a sublayer belongs to one layer, and that files contain the weights of sublayers."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from alignment_cases import STOCHASTIC

import keras_vattn

QUERY, VALUE = tf.ones((2, 3, 4)), tf.ones((2, 5, 6))


def owners(sublayer):
    """Return two layers that would share a sublayer."""
    if isinstance(sublayer, keras_vattn.Score):
        return [keras_vattn.Attention(sublayer), keras_vattn.CategoricalAttention(sublayer)]
    if isinstance(sublayer, keras_vattn.GaussianContext):
        return [keras_vattn.Attention("bilinear", context=sublayer) for _ in range(2)]
    if isinstance(sublayer, keras_vattn.Attention):
        return [keras_vattn.AttentionDecoder(4, sublayer) for _ in range(2)]
    return [keras_vattn.BayesianAttention(score="bilinear", prior=sublayer) for _ in range(2)]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (keras_vattn.Bilinear, "score"),
        (keras_vattn.GaussianContext, "context"),
        (keras_vattn.ContextualPrior, "prior"),
        (lambda: keras_vattn.Attention("bilinear"), "attention"),
    ],
)
def test_a_sublayer_has_one_owner(make, name):
    """Two layers with the same sublayer raise an error, because their file could not be loaded."""
    shared = make()
    first, second = owners(shared)
    first(QUERY, VALUE)
    first(QUERY, VALUE)
    with pytest.raises(
        ValueError, match=f"{name} already belongs to another layer, {first.name}:.*Received: {name}={shared.name}"
    ):
        second(QUERY, VALUE)


def file_of(layer, path):
    inputs = keras.Input((None, 8))
    keras.Model(inputs, layer(inputs, inputs)).save_weights(path)


@pytest.mark.parametrize(
    ("deterministic", "stochastic"),
    [
        (keras.layers.MultiHeadAttention(2, 4), keras_vattn.MultiHeadAttention(2, 4, alignment="weibull")),
        (keras_vattn.Attention("bilinear"), keras_vattn.Attention("bilinear", "lognormal")),
    ],
    ids=["multi-head", "attention"],
)
def test_a_stochastic_layer_loads_the_weights_of_a_deterministic_layer(deterministic, stochastic, tmp_path):
    path = tmp_path / "model.weights.h5"
    file_of(deterministic, path)
    inputs = keras.Input((None, 8))
    model = keras.Model(inputs, stochastic(inputs, inputs))
    model.load_weights(path)
    x = keras.random.normal((2, 3, 8), seed=1)
    np.testing.assert_allclose(model(x, training=False), deterministic(x, x), rtol=1e-5, atol=1e-6)
    assert int(stochastic.training_calls) == 0


def test_a_prior_that_the_file_lacks(tmp_path):
    path = tmp_path / "model.weights.h5"
    file_of(keras.layers.MultiHeadAttention(2, 4), path)
    layer = keras_vattn.MultiHeadAttention(2, 4, alignment="weibull", prior="contextual")
    inputs = keras.Input((None, 8))
    model = keras.Model(inputs, layer(inputs, inputs))
    with pytest.raises(ValueError, match="prior"):
        model.load_weights(path)


@pytest.mark.parametrize(
    ("layer", "wrong"),
    [
        (layer, wrong)
        for layer in (
            keras_vattn.Attention("bilinear", "weibull"),
            keras_vattn.CategoricalAttention("bilinear"),
            keras_vattn.MultiHeadAttention(2, 4, alignment="weibull"),
        )
        for wrong in ("query_mask", "value_mask", "attention_mask", "posterior_logits")
    ],
    ids=lambda x: x if isinstance(x, str) else type(x).__name__,
)
def test_a_symbolic_call_checks_like_an_eager_call(layer, wrong):
    shapes = {"query_mask": (4,), "value_mask": (3,), "attention_mask": (5, 3), "posterior_logits": (5, 3)}
    dtype = "float32" if wrong == "posterior_logits" else "bool"
    with pytest.raises(ValueError, match=f"{wrong}.*Received"):
        layer(keras.Input((3, 4)), keras.Input((5, 6)), **{wrong: keras.Input(shapes[wrong], dtype=dtype)})


@pytest.mark.parametrize(
    "layer",
    [
        keras_vattn.Attention("bilinear", "weibull"),
        keras_vattn.CategoricalAttention("bilinear", "marginal"),
        keras_vattn.MultiHeadAttention(2, 4, alignment="weibull"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_every_call_checks_shapes(layer):
    """Every call checks shapes, not only the first call, because a batch of one would be broadcast."""
    layer(QUERY, VALUE)
    with pytest.raises(ValueError, match=r"Received: query.shape=\(1, 3, 4\), value.shape=\(2, 5, 6\)"):
        layer(QUERY[:1], VALUE)
    with pytest.raises(ValueError, match=r"Received: key.shape=\(2, 4, 6\), value.shape=\(2, 5, 6\)"):
        layer(QUERY, VALUE, VALUE[:, :4])
    with pytest.raises(ValueError, match="Received: query"):
        layer(QUERY[0], VALUE)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_infinite_posterior_logits(policy):
    """Posterior logits are -inf at a masked key; in float16, -1e9 becomes -inf."""
    keras.config.set_dtype_policy(policy)
    posterior_logits = np.zeros((2, 3, 5), "float32")
    posterior_logits[..., 3] = -1e9 if policy == "mixed_float16" else -np.inf
    layer = keras_vattn.CategoricalAttention("bilinear", "elbo/enumerate")
    with tf.GradientTape() as tape:
        logits = tf.Variable(posterior_logits)
        result = layer(QUERY, VALUE, posterior_logits=logits, training=True)
        value = layer.losses[0] + tf.reduce_sum(result["log_prior"])
    assert np.isfinite(value)
    assert np.isfinite(tape.gradient(value, logits)).all()
    assert (np.exp(result["log_posterior"])[..., 3] == 0).all()
    for alignment in STOCHASTIC:
        layer = keras_vattn.Attention("bilinear", alignment)
        for training in (True, False):
            context = layer(QUERY, VALUE, posterior_logits=posterior_logits, training=training)
            assert np.isfinite(context).all()
            assert np.isfinite(layer.losses[0])
