"""Tests several draws in one call of the model: each has its own noise, and no call exceeds `max_rows`."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from predictive_cases import RecordRows, X, self_attention, sequence_model
from tiers import slow_after

import keras_vattn
from keras_vattn import Attention, AttentionDecoder, GaussianAttention, GaussianLatent, Sampler
from keras_vattn import posterior_predictive as draw


class AlwaysRandom(layers.Layer):
    """A third-party layer that adds noise in every call."""

    def __init__(self):
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(1)

    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x), seed=self.seed_generator)


class CustomAlignment(keras_vattn.LogNormal):
    """Samples noise from a seed of shape (2,), which the base class guarantees."""

    def noise(self, shape, seed):
        return tf.random.stateless_normal(shape, seed)


MODELS = {
    "latent": lambda x: GaussianLatent(2)(x),
    "gaussian": self_attention(GaussianAttention, dropout=0.4),
    "own-alignment": lambda x: Attention(alignment=CustomAlignment())(x, x),
    "categorical": lambda x: keras_vattn.CategoricalAttention(objective="importance_weighted/sample")(x, x)[
        "candidates"
    ],
    "own-noise": lambda x: AlwaysRandom()(GaussianLatent(2)(x)),
}
STOCHASTIC_WITH_DROPOUT = {
    "decoder": lambda x: AttentionDecoder(
        2, GaussianAttention(score="bilinear", dropout=0.4), num_layers=2, dropout=0.4
    )(x, x),
    "multi-head-weibull": self_attention(
        keras_vattn.layers.MultiHeadAttention, num_heads=2, key_dim=2, alignment="weibull", dropout=0.4
    ),
}
DROPOUTS = {
    "dropout": lambda x: layers.Dropout(0.4)(x),
    "shared": lambda x: layers.Dropout(0.4, noise_shape=(1, None, None))(x),
    "lstm": lambda x: layers.LSTM(2, dropout=0.4)(x),
    "inner-model": lambda x: keras.Sequential([layers.Dense(2), layers.Dropout(0.4)])(x),
}


@pytest.mark.parametrize("name", slow_after([*MODELS, *STOCHASTIC_WITH_DROPOUT, *DROPOUTS], 2))
def test_every_draw_of_every_example_has_its_own_noise(name):
    """All draws of all examples differ, although the examples are equal, for any number of draws per call."""
    recorder = RecordRows()

    def recorded(x):
        first, *other_outputs = keras.tree.flatten({**MODELS, **STOCHASTIC_WITH_DROPOUT, **DROPOUTS}[name](x))
        return [recorder(first), *other_outputs]

    model = sequence_model(recorded)
    equal_examples = np.repeat(X[:1], 5, axis=0)
    options, sampler = {"seed": 1, "batch_size": 3}, Sampler(model, dropout=name not in MODELS)
    single_draws = sampler(equal_examples, 5, max_rows=1, **options)
    assert recorder.rows == [3] * 5 + [2] * 5
    recorder.rows.clear()
    joint_draws = sampler(equal_examples, 5, max_rows=7, **options)
    # If examples share a mask, draws in one call would also share the mask, so each call computes one draw.
    assert recorder.rows == ([3] * 5 + [2] * 5 if name == "shared" else [6, 6, 3, 6, 4])
    for draws in (single_draws, joint_draws):
        for output in keras.tree.flatten(draws):
            # If all examples of a batch share a mask, only examples of different batches differ.
            independent = output[:, ::3] if name == "shared" else output
            for first in (independent, np.swapaxes(independent, 0, 1)):
                assert len(np.unique(first.reshape(len(first), -1), axis=0)) == len(first)
    repeated_draws = sampler(equal_examples, 5, max_rows=7, **options)
    keras.tree.map_structure(np.testing.assert_array_equal, joint_draws, repeated_draws)


def test_graph_nodes_are_not_repeated():
    """The nodes of a graph cannot be repeated. Shapes do not show this if there are as many edges as nodes."""
    inputs = keras.Input((4,)), keras.Input((2,), dtype="int32")
    model = keras.Model(inputs, keras_vattn.GraphAttention(3, alignment="weibull", seed=1)(*inputs))
    nodes, edges = np.ones((3, 4), "float32"), np.array([[0, 1], [1, 2], [2, 0]], "int32")
    draws = draw(model, [nodes, edges], 4, seed=1)
    assert draws.shape == (4, 3, 3)
    np.testing.assert_array_equal(draws, draw(model, [nodes, edges], 4, seed=1, max_rows=1))


@pytest.mark.slow
def test_max_rows_bounds_the_rows_of_every_call():
    recorder = RecordRows()
    model = sequence_model(lambda x: recorder(GaussianLatent(2)(x)))
    x = np.repeat(X, 20, axis=0)
    for options, limit in (({}, 256), ({"max_rows": 100}, 100), ({"batch_size": 7, "max_rows": 20}, 20)):
        recorder.rows.clear()
        draw(model, x, 30, **options)
        assert limit // 2 < max(recorder.rows) <= limit
        assert sum(recorder.rows) == 30 * 100
    recorder.rows.clear()
    draw(model, x, 2, batch_size=50, max_rows=10)  # a call has at least one draw of the batch
    assert recorder.rows == [50, 50, 50, 50]
