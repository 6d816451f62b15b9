"""Tests which attention layers `to_bayesian` converts, depending on its argument `layers`."""

import re

import keras
import numpy as np
import pytest
from conversion_cases import LinearAttention, X, nested_model, randomized
from keras import layers
from tiers import slow_after

import keras_vattn
from keras_vattn import to_bayesian, to_deterministic


def three_attentions():
    x = inputs = keras.Input((5, 8))
    for name in ("lower", "middle", "upper"):
        x = layers.MultiHeadAttention(2, 4, name=name)(x, x)
    return randomized(keras.Model(inputs, x))


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        (2, ["middle", "upper"]),
        (0.1, ["upper"]),
        (2 / 3, ["middle", "upper"]),
        ("^l|^u", ["lower", "upper"]),
        (lambda layer: layer.name == "middle", ["middle"]),
    ],
)
def test_which_attentions(selection, names, tmp_path, capsys):
    model = three_attentions()
    bayesian = to_bayesian(model, prior="fixed", seed=5, layers=selection, verbose=True)
    skipped = [name for name in ("lower", "middle", "upper") if name not in names]
    printed = f"converted {len(names)} of 3 attention layers" + (f"; skipped: {', '.join(skipped)}" if skipped else "")
    assert capsys.readouterr().out == f"{printed}\n"
    bayesian.save(tmp_path / "model.keras")
    for each in (bayesian, keras.saving.load_model(tmp_path / "model.keras")):
        drawing = keras_vattn.stochastic_layers(each)
        assert [x.name for x in drawing] == names and [x.seed for x in drawing] == [*range(5, 5 + len(names))]
        np.testing.assert_allclose(each(X), model(X), rtol=1e-5, atol=1e-6)
    assert to_deterministic(bayesian).get_config() == model.get_config()


def test_without_options_the_last_third_draws_and_has_no_divergence():
    bayesian = to_bayesian(three_attentions())
    (drawing,) = keras_vattn.stochastic_layers(bayesian)
    assert drawing.name == "upper" and drawing.alignment.k == 1.0 and drawing.alignment_prior is None
    bayesian(X, training=True)
    assert not bayesian.losses


def blocks(num_blocks, depth):
    """Return a model of attention blocks, nested as a layer in `depth` outer models."""
    x = inputs = keras.Input((5, 8))
    for number in range(num_blocks):
        block = keras.Input((5, 8))
        attended = layers.MultiHeadAttention(2, 4, name=f"attention_{number}")(block, block)
        x = keras.Model(block, attended, name=f"block_{number}")(x)
    model = keras.Model(inputs, x, name="backbone_0")
    for level in range(depth):
        inputs = keras.Input((5, 8))
        model = keras.Model(inputs, layers.Dense(2)(model(inputs)), name=f"backbone_{level + 1}")
    return randomized(model)


@pytest.mark.parametrize("depth", slow_after([0, 1, 2]))
def test_the_last_attentions_are_the_last_that_run(depth, tmp_path, capsys):
    """The last layers are the last to run, at any nesting depth, and also in the loaded model."""
    model = blocks(4, depth)
    bayesian = to_bayesian(model, prior="fixed", layers=2, seed=5, verbose=True)
    skipped = capsys.readouterr().out.partition("skipped: ")[2].strip().split(", ")
    assert [path.split("/")[-1] for path in skipped] == ["attention_0", "attention_1"]
    bayesian.save(tmp_path / "model.keras")
    for each in (bayesian, keras.saving.load_model(tmp_path / "model.keras")):
        drawing = [(x.name, x.seed) for x in keras_vattn.stochastic_layers(each)]
        assert drawing == [("attention_2", 5), ("attention_3", 6)]
        np.testing.assert_allclose(each(X), model(X), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_which_attentions_inside_a_layer(tmp_path):
    """A layer with several attention layers records which of them draw."""
    model = nested_model()
    bayesian = to_bayesian(model, prior="fixed", layers="inner")
    bayesian.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for each in (bayesian, loaded):
        assert [x.name for x in keras_vattn.stochastic_layers(each)] == ["inner", "inner"]
        np.testing.assert_allclose(each(X), model(X), rtol=1e-5, atol=1e-6)
    assert not keras_vattn.stochastic_layers(to_deterministic(loaded))


def test_unselected_attention_may_be_unknown():
    inputs = keras.Input((5, 8))
    x = layers.MultiHeadAttention(2, 4, name="known")(inputs, inputs)
    model = keras.Model(inputs, LinearAttention(name="linear")(x))
    assert len(keras_vattn.stochastic_layers(to_bayesian(model, layers="known"))) == 1
    for selection in (1, "lin"):
        with pytest.raises(ValueError, match="LinearAttention"):
            to_bayesian(model, layers=selection)
    for selection in (0, 3, 1.0, ["known"]):
        with pytest.raises(
            ValueError, match=re.escape("an integer from 1 to 2 (the number of attention layers), a fraction")
        ):
            to_bayesian(model, layers=selection)
    with pytest.raises(ValueError, match=r"`layers` must select an attention layer of the model.*LinearAttention"):
        to_bayesian(model, layers="nothing")
    with pytest.raises(ValueError, match="can be converted only once: select all layers to convert in one call"):
        to_bayesian(to_bayesian(model, layers="known"), layers="known")
    with pytest.raises(ValueError, match=r"`layers` is not a regular expression: missing \).*layers='\('"):
        to_bayesian(model, layers="(")
