import keras

import keras_vattn
from keras_vattn import stochastic_layers


def names(model):
    return [layer.name for layer in stochastic_layers(model)]


def model():
    inputs = keras.Input((5, 3))
    inner_inputs = keras.Input((5, 3))
    inner = keras.Model(inner_inputs, keras_vattn.GaussianLatent(3, name="inner")(inner_inputs))
    x = keras_vattn.DeterministicAttention(dropout=0.5)(inner(inputs), inputs)
    x = keras_vattn.AttentionDecoder(3, keras_vattn.GaussianAttention(score="bilinear", name="decoded"))(x, x)["hidden"]
    heads = keras_vattn.MultiHeadAttention(2, 2, alignment="weibull", name="heads")
    x = heads(x, keras.layers.Dropout(0.5)(x))
    return keras.Model(inputs, keras_vattn.GaussianLatent(2, name="outer")(x + heads(x, x)))


def test_inner_layers_are_listed_once_in_a_stable_order():
    assert sorted(names(model())) == ["decoded", "heads", "inner", "outer"]
    assert names(model()) == names(model())
    clone = keras.models.clone_model(model())
    assert sorted(names(clone)) == ["decoded", "heads", "inner", "outer"]


def test_draws_without_a_kl_and_a_kl_without_draws():
    value = keras.Input((4, 3))
    logits = keras.Input((4, 4))
    enumerated = keras_vattn.CategoricalAttention(objective="elbo/enumerate", name="enumerated")
    drawing = keras_vattn.Attention(alignment="gumbel_softmax", name="drawing")
    latent = enumerated(value, value, posterior_logits=logits)
    layers = keras.Model([value, logits], [latent["log_prior"], drawing(value, value)])
    assert sorted(names(layers)) == ["drawing", "enumerated"]
    assert not enumerated.is_stochastic
    assert stochastic_layers(layers, with_kl=True) == [enumerated]
    log_likelihood = keras_vattn.LatentLogLikelihood("elbo/sample", name="drawn")
    assert stochastic_layers(log_likelihood) == [log_likelihood]
    assert stochastic_layers(log_likelihood, with_kl=True) == []
    # A call with posterior logits adds a KL.
    drawing(*[keras.ops.ones((2, 4, 3))] * 2, posterior_logits=keras.ops.ones((2, 4, 4)))
    assert drawing in stochastic_layers(layers, with_kl=True)


def test_with_kl_lists_the_layers_that_kl_weight_affects():
    inputs = keras.Input((4, 3))
    x = keras_vattn.Attention(alignment="weibull", name="no_prior")(inputs, inputs)
    x = keras_vattn.MultiHeadAttention(2, 2, alignment="weibull", prior="fixed", name="heads")(x, x)
    x = keras_vattn.GaussianLatent(2, name="latent")(keras_vattn.GaussianAttention(name="context")(x, x))
    model = keras.Model(inputs, x)
    model(keras.ops.ones((2, 4, 3)), training=True)
    assert len(model.losses) == 3 and all(map(float, model.losses))
    for layer in stochastic_layers(model, with_kl=True):
        layer.kl_weight = 0.0
    model(keras.ops.ones((2, 4, 3)), training=True)
    assert [*map(float, model.losses)] == [0.0] * 3
    assert set(names(model)) - {layer.name for layer in stochastic_layers(model, with_kl=True)} == {"no_prior"}
