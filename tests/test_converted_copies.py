"""Tests the files of converted models, and the state of these models apart from weights."""

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf
from conversion_cases import (
    Subclassed,
    X,
    backbone,
    bayesian_of,
    model_without_build,
    nested_model,
    outputs_of,
    randomized,
    subclassed_model,
)
from keras import layers

import keras_vattn
from keras_vattn import to_deterministic


@pytest.mark.slow
def test_files_of_user_classes(tmp_path):
    bayesian = bayesian_of(subclassed_model(), prior=keras_vattn.GammaPrior(0.5), kl_weight=0.25)
    bayesian.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", custom_objects={"Subclassed": Subclassed})
    np.testing.assert_array_equal(loaded(X), bayesian(X))
    assert len(keras_vattn.stochastic_layers(loaded)) == 3
    assert {layer.kl_weight for layer in keras_vattn.stochastic_layers(loaded)} == {0.25}
    # Save the loaded model again.
    loaded.save(tmp_path / "again.keras")
    again = keras.saving.load_model(tmp_path / "again.keras", custom_objects={"Subclassed": Subclassed})
    np.testing.assert_array_equal(again(X), bayesian(X))


# Keras gives this warning for the original model, too.
@pytest.mark.filterwarnings("ignore:`build\\(\\)` was called on layer 'without_build:UserWarning")
def test_attentions_that_the_first_call_builds(tmp_path):
    model = model_without_build()
    bayesian = bayesian_of(model)
    np.testing.assert_array_equal(outputs_of(bayesian, X), outputs_of(model, X))
    bayesian.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for each in (loaded, to_deterministic(loaded)):
        np.testing.assert_array_equal(outputs_of(each, X), outputs_of(model, X))
    assert len(loaded.trainable_weights) == len(bayesian.trainable_weights) == len(model.trainable_weights) + 2 * 3


@pytest.mark.slow
def test_frozen_layers_stay_frozen():
    model = nested_model()
    model.get_layer("encoder").trainable = False
    bayesian = bayesian_of(model)
    restored = to_deterministic(bayesian)
    for each in (bayesian, restored):
        assert not ids(each.get_layer("encoder").weights) & ids(each.trainable_weights)
        assert each.trainable_weights
    assert len(restored.trainable_weights) == len(model.trainable_weights)


@pytest.mark.slow
def test_a_frozen_inner_layer_stays_frozen():
    """An inner layer and its prior stay frozen, although the config of the outer layer does not record this."""
    model = nested_model()
    inner_attention(model).trainable = False
    bayesian = bayesian_of(model)
    assert inner_attention(model).weights and bayesian.trainable_weights
    for each in (bayesian, to_deterministic(bayesian)):
        assert not inner_attention(each).trainable
        assert not ids(inner_attention(each).weights) & ids(each.trainable_weights)


def ids(weights):
    return {id(weight) for weight in weights}


def inner_attention(model):
    """Return an attention layer of a block in an inner model."""
    return model.get_layer("encoder").layers[-1].inner


def blocks():
    """Return a model of two blocks with equal weights. Their attention layers have the same name."""
    inputs = keras.Input((5, 8))
    encoders = [keras_hub.layers.TransformerEncoder(16, 2, name=f"block_{n}") for n in range(2)]
    model = randomized(keras.Model(inputs, [block(inputs) for block in encoders]))
    encoders[1].set_weights(encoders[0].get_weights())
    return model


def test_a_copy_has_the_seeds_and_log_names(tmp_path):
    """Each attention layer has its own seed and log name, whether loaded from a file or rebuilt from a config."""
    bayesian = bayesian_of(blocks(), keras_vattn.Weibull(3.0), seed=3)
    bayesian.save(tmp_path / "model.keras")
    inputs = X[..., :8]
    drawn = [np.asarray(x) for x in bayesian(inputs, training=True)]
    assert np.abs(drawn[0] - drawn[1]).max() > 1e-2
    expected = {name: float(x) for name, x in keras_vattn.divergences(bayesian).items()}
    assert len(expected) == 2
    for model in (keras.saving.load_model(tmp_path / "model.keras"), keras.models.clone_model(bayesian)):
        model.set_weights(bayesian.get_weights())
        assert [x.seed for x in keras_vattn.stochastic_layers(model)] == [3, 4]
        for one, two in zip(model(inputs, training=True), drawn, strict=True):
            np.testing.assert_array_equal(one, two)
        logged = {name: float(x) for name, x in keras_vattn.divergences(model).items()}
        assert logged == pytest.approx(expected)


def test_vocabularies_and_statistics_are_copied():
    """Conversion copies state that is not a weight: vocabularies, and statistics that Keras computes from weights."""
    words = layers.TextVectorization(output_sequence_length=4)
    words.adapt(["a b c d", "e f g"])
    statistics = layers.Normalization()
    statistics.adapt(np.arange(12.0).reshape(6, 2))
    inputs, numbers = keras.Input((), dtype="string"), keras.Input((2,))
    x = layers.Embedding(12, 8)(words(inputs))
    x = layers.MultiHeadAttention(2, 4)(x, x)
    model = keras.Model([inputs, numbers], layers.Dense(2)(x) + statistics(numbers)[:, None])
    model_inputs = [tf.constant(["a c e", "g"]), tf.constant([[0.0, 1.0], [2.0, 3.0]])]
    bayesian = bayesian_of(model)
    for other in (bayesian, to_deterministic(bayesian)):
        np.testing.assert_allclose(other(model_inputs), model(model_inputs), rtol=1e-5, atol=1e-6)


# KerasHub before 0.32 raises this warning with Keras 3.15.
@pytest.mark.filterwarnings("ignore:`build\\(\\)` was called on layer 'bert_text_classifier:UserWarning")
def test_presets_hold_the_original(tmp_path):
    """KerasHub looks for the class of a preset among registered classes, so converted classes are not registered."""
    # KerasHub 0.25 cannot save a task without a preprocessor.
    tokenizer = keras_hub.tokenizers.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good"])
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=6)
    model = keras_hub.models.BertTextClassifier(backbone("bert"), num_classes=2, preprocessor=preprocessor)
    model.save_to_preset(tmp_path / "original")
    bayesian = bayesian_of(model)
    registered = [x for x in keras.saving.get_custom_objects().values() if isinstance(x, type)]
    assert not [x for x in registered if hasattr(x, "converted_from")]
    assert type(keras_hub.models.TextClassifier.from_preset(str(tmp_path / "original"))) is type(model)
    for each in (bayesian, bayesian.backbone):
        with pytest.raises(ValueError, match=r"to_deterministic.*Received: preset_dir="):
            each.save_to_preset(tmp_path / "bayesian")
    to_deterministic(bayesian).save_to_preset(tmp_path / "restored")
    loaded = keras_hub.models.TextClassifier.from_preset(str(tmp_path / "restored"))
    for one, two in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(one, two)
