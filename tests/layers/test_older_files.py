"""Files that the first version wrote (tests/saved/write.py), in which the count of training calls was a weight."""

import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vattn

SAVED = pathlib.Path(__file__).parent.parent / "saved"
OUTPUTS = np.load(SAVED / "outputs.npz")
COUNTED = ("weibull", "gaussian", "heads", "latent", "decoder")


def counted(model):
    layer = model.get_layer("layer")
    return getattr(layer, "attention", layer)


@pytest.mark.parametrize("name", ["deterministic", *COUNTED])
def test_they_load(name):
    model = keras.saving.load_model(SAVED / f"{name}.keras")
    inputs = [OUTPUTS["query"], OUTPUTS["value"]]
    np.testing.assert_allclose(model(inputs, training=False), OUTPUTS[name], rtol=1e-5, atol=1e-6)
    if name in COUNTED:
        assert int(counted(model).training_calls) == 2


def test_weights_alone_load():
    model = keras.saving.load_model(SAVED / "decoder.keras")
    counted(model).training_calls.assign(7)
    model.set_weights([0.0 * weight for weight in model.get_weights()])
    model.load_weights(SAVED / "decoder.weights.h5")
    inputs = [OUTPUTS["query"], OUTPUTS["value"]]
    np.testing.assert_allclose(model(inputs, training=False), OUTPUTS["decoder"], rtol=1e-5, atol=1e-6)
    assert int(counted(model).training_calls) == 2


@pytest.mark.parametrize("name", COUNTED)
def test_the_count_is_saved_and_is_no_weight(name, tmp_path):
    model = keras.saving.load_model(SAVED / f"{name}.keras")
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


def test_a_checkpoint_of_tensorflow_holds_the_count(tmp_path):
    layers = [keras_vattn.GaussianLatent(2) for _ in range(2)]
    for layer in layers:
        layer.build((None, 6))
    layers[0].training_calls.assign(5)
    path = tf.train.Checkpoint(layer=layers[0]).save(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(layer=layers[1]).restore(path).assert_existing_objects_matched()
    assert int(layers[1].training_calls) == 5


def test_weight_files_of_the_keras_layer_go_both_ways(tmp_path):
    x = OUTPUTS["query"]
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
