"""Tests draws with dropout: dropout is on only if requested, and nothing else behaves as in training."""

import keras
import numpy as np
import pytest
from keras import layers
from predictive_cases import D, X, predict, sequence_model

from keras_vattn import GaussianAttention
from keras_vattn import posterior_predictive as draw


def test_dropout_rate():
    """Of 12 000 ones, a fraction of 0.3 is dropped, within 4 standard errors. The others become 1 / 0.7."""
    model = sequence_model(layers.Dropout(0.3))
    draws = draw(model, np.ones_like(X), 200, dropout=True, seed=1)
    dropped = draws == 0
    assert abs(dropped.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / draws.size)
    np.testing.assert_allclose(draws[~dropped], 1 / 0.7, rtol=1e-6)


class Drops(layers.Layer):
    """A dropout layer whose rate attribute has an unusual name."""

    def __init__(self, p):
        super().__init__()
        self.p, self.seed_generator = p, keras.random.SeedGenerator(1)

    def call(self, x, training=False):
        return keras.random.dropout(x, self.p, seed=self.seed_generator) if training else x


def test_an_unknown_rate_attribute_warns():
    model = sequence_model(lambda x: Drops(0.5)(layers.Dropout(0.3)(x)))
    with pytest.warns(UserWarning, match=r"dropout=True has no effect.*Received: Drops\(name='drops"):
        draws = draw(model, np.ones_like(X), 4, dropout=True, seed=1)
    np.testing.assert_allclose(draws[draws != 0], 1 / 0.7, rtol=1e-6)


@pytest.mark.slow
def test_dropout_and_posterior_draw_independently():
    """In a model with stochastic attention and dropout, either can be random without the other."""
    inputs = keras.Input((None, D))
    attended = GaussianAttention()(inputs, inputs)
    model = keras.Model(inputs, [attended, layers.Dropout(0.5)(attended)])
    mean, _ = predict(model)
    contexts, dropped = draw(model, X, 20, dropout=True, posterior=False, seed=1)
    np.testing.assert_allclose(contexts, np.broadcast_to(mean, contexts.shape), rtol=1e-6)
    assert np.all((dropped == 0) | np.isclose(dropped, 2 * mean, rtol=1e-5)) and dropped.std(axis=0).min() > 0
    contexts, undropped = draw(model, X, 20, posterior=True, seed=1)
    np.testing.assert_array_equal(contexts, undropped)
    assert contexts.std(axis=0).min() > 0
    with pytest.raises(ValueError, match=r"Received: model=.*dropout=False, posterior=False"):
        draw(model, X, 2, posterior=False)


def test_attention_with_dropout_keeps_its_temperature_at_inference():
    attention = GaussianAttention(temperature=0.0, dropout=0.5, score="bilinear")
    inputs = keras.Input((None, D))
    context, weights = attention(inputs, inputs, return_attention_scores=True)
    contexts, weights = draw(keras.Model(inputs, [context, weights]), X, 20, dropout=True, seed=1)
    np.testing.assert_allclose(weights, np.broadcast_to(weights[:1], weights.shape), rtol=1e-5)
    # Only dropout is random: each of 3 positions is dropped or doubled.
    masks = np.array(np.meshgrid([0, 2], [0, 2], [0, 2])).reshape(3, 8).T
    possible = np.einsum("nts,ms,nsd->mntd", weights[0], masks, X)
    distances = np.abs(contexts[:, None] - possible[None]).max(axis=-1).min(axis=1)
    assert distances.max() < 1e-5
    assert contexts.std(axis=0).min() > 0


def test_batch_normalisation_keeps_its_averages():
    inputs = keras.Input((None, D))
    normalised = layers.BatchNormalization()(inputs)
    model = keras.Model(inputs, [normalised, layers.Dropout(0.5)(normalised)])
    model.layers[1].set_weights([np.full(D, value, "float32") for value in (2.0, 1.0, 0.5, 4.0)])
    draws, dropped = draw(model, X, 3, dropout=True, seed=1)
    np.testing.assert_allclose(draws, np.broadcast_to(predict(model)[0], draws.shape), rtol=1e-6)
    assert np.any(dropped != draws)


class CallsDropout(layers.Layer):
    """Passes `training` to the dropout layer as a positional argument."""

    def __init__(self):
        super().__init__()
        self.dropout_layer = layers.Dropout(0.5)

    def call(self, x):
        return self.dropout_layer.call(x, False)


def test_training_by_position():
    model = keras.Sequential([keras.Input((3,)), CallsDropout()])
    draws = draw(model, np.ones((4, 3), "float32"), 8, seed=1, dropout=True)
    assert {*np.unique(draws)} == {0.0, 2.0}
