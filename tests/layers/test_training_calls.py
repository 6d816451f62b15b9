"""The count of training calls, which is saved with a layer and is none of its weights."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vattn

LAYERS = {
    "attention": keras_vattn.BayesianAttention(score="additive", name="layer"),
    "decoder": keras_vattn.AttentionDecoder(4, keras_vattn.GaussianAttention("bilinear"), name="layer"),
}


def counted(model):
    layer = model.get_layer("layer")
    return getattr(layer, "attention", layer)


@pytest.mark.parametrize("name", list(LAYERS))
def test_the_count_is_saved_and_is_no_weight(name, tmp_path):
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


def test_a_checkpoint_of_tensorflow_holds_the_count(tmp_path):
    layers = [keras_vattn.GaussianLatent(2) for _ in range(2)]
    for layer in layers:
        layer.build((None, 6))
    layers[0].training_calls.assign(5)
    path = tf.train.Checkpoint(layer=layers[0]).save(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(layer=layers[1]).restore(path).assert_existing_objects_matched()
    assert int(layers[1].training_calls) == 5


def test_weight_files_of_the_keras_layer_go_both_ways(tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 3, 6)).astype("float32")
    of_keras, ours = keras.layers.MultiHeadAttention(2, 3), keras_vattn.MultiHeadAttention(2, 3, alignment="weibull")
    models = []
    for layer in (of_keras, ours):
        inputs = keras.Input((None, 6))
        models.append(keras.Model(inputs, layer(inputs, inputs)))
    ours.training_calls.assign(5)
    for first, second in (models, models[::-1]):
        first.set_weights([np.random.default_rng(len(w.shape)).normal(size=w.shape) for w in first.weights])
        first.save_weights(tmp_path / "model.weights.h5")
        second.load_weights(tmp_path / "model.weights.h5")
        np.testing.assert_allclose(second(x), first(x), atol=1e-6)
    assert int(ours.training_calls) == 5
