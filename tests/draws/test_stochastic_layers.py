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


def test_layers_inside_layers_and_models_are_listed_once_in_a_stable_order():
    assert sorted(names(model())) == ["decoded", "heads", "inner", "outer"]
    assert names(model()) == names(model())
    clone = keras.models.clone_model(model())
    assert sorted(names(clone)) == ["decoded", "heads", "inner", "outer"]


def test_what_draws_without_a_divergence_and_what_has_one_without_a_draw():
    value = keras.Input((4, 3))
    logits = keras.Input((4, 4))
    enumerated = keras_vattn.CategoricalAttention(objective="elbo/enumerate", name="enumerated")
    drawing = keras_vattn.Attention(alignment="gumbel_softmax", name="drawing")
    latent = enumerated(value, value, posterior_logits=logits)
    layers = keras.Model([value, logits], [latent["log_prior"], drawing(value, value)])
    assert sorted(names(layers)) == ["drawing", "enumerated"]
    assert not enumerated.is_stochastic


def test_a_layer_is_a_model_of_one():
    latent = keras_vattn.GaussianLatent(2)
    assert stochastic_layers(latent) == [latent]
    assert stochastic_layers(keras.layers.Dropout(0.5)) == stochastic_layers(keras_vattn.WordDropout(0.5, 1, ())) == []
