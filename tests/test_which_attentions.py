"""Which attentions of a model `to_bayesian` converts, by its argument `layers`."""

import keras
import numpy as np
import pytest
from conversion_cases import LinearAttention, X, nested_model, randomized
from keras import layers

import keras_vattn
from keras_vattn import to_bayesian, to_deterministic


def three_attentions():
    x = inputs = keras.Input((5, 8))
    for name in ("lower", "middle", "upper"):
        x = layers.MultiHeadAttention(2, 4, name=name)(x, x)
    return randomized(keras.Model(inputs, x))


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        (1, ["upper"]),
        (2, ["middle", "upper"]),
        (9, ["lower", "middle", "upper"]),
        ("^l|^u", ["lower", "upper"]),
        (lambda layer: layer.name == "middle", ["middle"]),
    ],
)
def test_which_attentions(chosen, names, tmp_path, capsys):
    model = three_attentions()
    bayesian = to_bayesian(model, prior="fixed", seed=5, layers=chosen, verbose=True)
    left = [name for name in ("lower", "middle", "upper") if name not in names]
    printed = f"{len(names)} attentions of 3 draw now" + (f"; left: {', '.join(left)}" if left else "")
    assert capsys.readouterr().out == f"{printed}\n"
    bayesian.save(tmp_path / "model.keras")
    for each in (bayesian, keras.saving.load_model(tmp_path / "model.keras")):
        drawing = keras_vattn.stochastic_layers(each)
        assert [x.name for x in drawing] == names and [x.seed for x in drawing] == [*range(5, 5 + len(names))]
        np.testing.assert_allclose(each(X), model(X), rtol=1e-5, atol=1e-6)
    assert to_deterministic(bayesian).get_config() == model.get_config()


def test_which_attentions_inside_a_layer(tmp_path):
    """What holds several remembers which of them draw."""
    model = nested_model()
    bayesian = to_bayesian(model, prior="fixed", layers="inner")
    bayesian.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for each in (bayesian, loaded):
        assert [x.name for x in keras_vattn.stochastic_layers(each)] == ["inner", "inner"]
        np.testing.assert_allclose(each(X), model(X), rtol=1e-5, atol=1e-6)
    assert not keras_vattn.stochastic_layers(to_deterministic(loaded))


def test_attention_that_is_not_chosen_need_not_be_understood():
    inputs = keras.Input((5, 8))
    x = layers.MultiHeadAttention(2, 4, name="known")(inputs, inputs)
    model = keras.Model(inputs, LinearAttention(name="linear")(x))
    assert len(keras_vattn.stochastic_layers(to_bayesian(model, layers="known"))) == 1
    for chosen in (1, "lin", "nothing"):
        with pytest.raises(ValueError, match="LinearAttention"):
            to_bayesian(model, layers=chosen)
    with pytest.raises(ValueError, match=r"`layers` must be a positive integer.*layers=0"):
        to_bayesian(model, layers=0)
    with pytest.raises(ValueError, match=r"`layers` is no regular expression: missing \).*layers='\('"):
        to_bayesian(model, layers="(")
