"""Tests draws with dropout in all parts of recurrent decoders."""

import keras
import numpy as np
import pytest
from predictive_cases import D, T, X, predict

import keras_vattn
from keras_vattn import posterior_predictive, recurrent


def draw(model, num_samples):
    return posterior_predictive(model, X, num_samples, dropout=True, seed=1)


class TwoCells(recurrent.RecurrentDecoder):
    """A decoder with two cells that have their own dropout rate. The output of the cells is the attention's query."""

    gives = ("lower_hidden", "context", "weights")

    def __init__(self, attention, rate):
        super().__init__()
        self.attention, self.rate_below = attention, rate
        self.cells = [keras_vattn.GRUCell(3), keras_vattn.GRUCell(3)]
        self.seed_generator = keras.random.SeedGenerator(1)

    def build(self, inputs_shape, memory_shape):
        self.attention.build((None, None, 3), memory_shape)
        for cell, width in zip(self.cells, (inputs_shape[-1], 3), strict=True):
            cell.build((None, None, width))

    def parts(self):
        cells = recurrent.CellsPart(
            self.cells, dropout=self.rate_below, seed_generator=self.seed_generator, name="lower"
        )
        query = lambda outputs, state: outputs["lower_hidden"]  # noqa: E731
        return [cells, recurrent.AttentionPart(self.attention, query)]


def decoder_model(decoder):
    inputs = keras.Input((T, D))
    outputs = decoder(inputs, inputs)
    return keras.Model(inputs, [outputs[name] for name in decoder.gives])


@pytest.mark.slow
def test_a_part_with_another_dropout_attribute():
    model = decoder_model(TwoCells(keras_vattn.Attention("bilinear", alignment="weibull"), 0.5))
    hidden = draw(model, 30)[0]
    assert hidden.std(axis=0).min() > 1e-3
    np.testing.assert_array_equal(draw(model, 30)[0], hidden)
    mean_hidden = posterior_predictive(model, X, 2, seed=1)[0]
    np.testing.assert_allclose(mean_hidden, np.broadcast_to(predict(model)[0], mean_hidden.shape), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_the_attention_drops_its_weights_and_does_not_draw_as_in_training(rate):
    attention = keras_vattn.GaussianAttention(score="bilinear", temperature=0.0, dropout=0.5)
    hidden, contexts, weights = draw(decoder_model(TwoCells(attention, rate)), 20)
    assert (hidden.std(axis=0).max() > 1e-3) == (rate > 0)
    # Only dropout is random: each of 3 positions is dropped or doubled.
    masks = np.array(np.meshgrid([0, 2], [0, 2], [0, 2])).reshape(3, 8).T
    possible = np.einsum("knts,ms,nsd->mkntd", weights, masks, X)
    assert np.abs(contexts - possible).max(axis=-1).min(axis=0).max() < 1e-5
    assert contexts.std(axis=0).min() > 0
