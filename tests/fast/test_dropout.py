import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vattn
from keras_vattn import random
from keras_vattn.fast import Dropout

X = np.random.default_rng(1).normal(size=(6, 5, 7)).astype("float32")


def pair(rate, **options):
    return [layer(rate, seed=3, **options) for layer in (Dropout, keras.layers.Dropout)]


@pytest.mark.parametrize(("rate", "shape"), [(0.3, (6, 5, 7)), (0.5, (3, 3, 5)), (0.0, (3, 3, 5)), (1e-4, (1,))])
def test_the_draws_equal_keras(rate, shape):
    """Covers several calls, eagerly and in a graph. For an odd number of entries, half of the last pair is unused."""
    x = tf.ones(shape)
    ours, reference = pair(rate)
    in_graph = tf.function(lambda x: ours(x, training=True), input_signature=[tf.TensorSpec([None] * len(shape))])
    for call in (lambda x: ours(x, training=True), in_graph, in_graph):
        np.testing.assert_allclose(call(x), reference(x, training=True), rtol=1e-6)


def test_the_draws_are_equal_with_and_without_xla():
    ours, reference = Dropout(0.4, seed=3), Dropout(0.4, seed=3)
    compiled = tf.function(lambda x: ours(x, training=True), jit_compile=True)
    for _ in range(2):
        np.testing.assert_array_equal(compiled(X) == 0.0, reference(X, training=True) == 0.0)


@pytest.mark.parametrize("seed", [(-5, 7), (5, -7), (-5, -7)])
def test_the_mask_of_negative_numbers_is_the_same_under_xla(seed):
    """Folded seeds may be negative, and XLA must give the same mask for negative seeds."""
    draw = tf.function(lambda seed: random.dropout_mask((100,), 0.5, seed), jit_compile=True)
    np.testing.assert_array_equal(draw(tf.constant(seed)), random.dropout_mask((100,), 0.5, tf.constant(seed)))


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 2, 2**32 - 1])
def test_the_draws_equal_keras_for_extreme_seeds(seed):
    """Keras starts from the state [seed, 0]. Some of these seeds are 0 modulo the largest int32 minus one."""
    ours, reference = (layer(0.5, seed=seed) for layer in (Dropout, keras.layers.Dropout))
    for _ in range(2):
        np.testing.assert_array_equal(ours(X, training=True), reference(X, training=True))


def test_the_mask_is_shared_along_axes_of_size_1():
    ours, reference = pair(0.5, noise_shape=(None, 1, 7))
    np.testing.assert_allclose(ours(X, training=True), reference(X, training=True), rtol=1e-6)
    mask = np.asarray(ours(np.ones_like(X), training=True)) > 0
    np.testing.assert_array_equal(mask, np.broadcast_to(mask[:, :1], X.shape))


def test_the_gradient_is_the_mask():
    layer = Dropout(0.25, seed=3)
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
    np.testing.assert_allclose(tape.gradient(y, x), np.where(y == 0.0, 0.0, 1 / 0.75), rtol=1e-6)


def test_inference_changes_nothing_and_takes_no_seed():
    layer = Dropout(0.5, seed=3)
    before = layer.seed_generator.state.numpy()
    np.testing.assert_array_equal(layer(X), X)
    np.testing.assert_array_equal(layer.seed_generator.state.numpy(), before)


def test_dropout_removes_nan():
    result = Dropout(0.5, seed=3)(np.full((100,), np.nan, "float32"), training=True).numpy()
    assert np.isnan(result).any()
    assert (result[~np.isnan(result)] == 0.0).all()


def test_errors():
    layer = Dropout(0.5, seed=3)
    before = layer.seed_generator.state.numpy()
    for dtype in ("int32", "bool"):
        with pytest.raises(ValueError, match=f"floats.*inputs.dtype={dtype}"):
            layer(tf.cast(X, dtype), training=True)
    np.testing.assert_array_equal(layer.seed_generator.state.numpy(), before)


@pytest.mark.parametrize("max_rows", [2, 256])
def test_posterior_predictive_draws_equal_keras(max_rows):
    """Covers one draw per call, and several draws per call with a seed for each draw."""
    draws = []
    for layer in pair(0.5):
        inputs = keras.Input((7,))
        model = keras.Model(inputs, layer(inputs))
        x = X[0, :2]
        draws.append(keras_vattn.posterior_predictive(model, x, 4, dropout=True, seed=1, max_rows=max_rows))
    np.testing.assert_allclose(*draws, rtol=1e-6)
    assert len(np.unique(draws[0], axis=0)) == 4
