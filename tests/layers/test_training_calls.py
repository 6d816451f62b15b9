"""Tests that the count of training calls is saved with a layer, but is not one of its weights."""

import keras
import pytest

import keras_vattn

LAYERS = {
    "attention": keras_vattn.BayesianAttention(score="additive", name="layer"),
    "decoder": keras_vattn.AttentionDecoder(4, keras_vattn.GaussianAttention("bilinear"), name="layer"),
}


def counted(model):
    layer = model.get_layer("layer")
    return getattr(layer, "attention", layer)


@pytest.mark.parametrize("name", list(LAYERS))
def test_the_count_is_saved_but_is_not_a_weight(name, tmp_path):
    inputs = keras.Input((None, 6)), keras.Input((None, 6))
    model = keras.Model(inputs, LAYERS[name](*inputs))
    layer = counted(model)
    assert "training_calls" not in [weight.name for weight in model.weights]
    assert "training_calls" in [variable.name for variable in model.variables]
    layer.training_calls.assign(5)
    model.save(tmp_path / "model.keras")
    assert int(counted(keras.saving.load_model(tmp_path / "model.keras")).training_calls) == 5
    model.save_weights(tmp_path / "model.weights.h5")
    layer.training_calls.assign(0)
    model.load_weights(tmp_path / "model.weights.h5")
    assert int(layer.training_calls) == 5


def test_a_legacy_file_has_no_count(tmp_path):
    inputs = keras.Input((None, 6))
    model = keras.Model(inputs, keras.layers.MultiHeadAttention(2, 3)(inputs, inputs))
    converted = keras_vattn.to_bayesian(model)
    for model in (converted, keras.Sequential([inputs, keras_vattn.GaussianLatent(2)])):
        model.save(tmp_path / "untrained.h5")
        (layer,) = keras_vattn.stochastic_layers(model)
        layer.training_calls.assign(5)
        with pytest.warns(UserWarning, match=r"annealing starts again.*\.keras.*Received: .*training_calls"):
            model.save(tmp_path / "model.h5")
