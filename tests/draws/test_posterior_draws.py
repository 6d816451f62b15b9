import keras
import numpy as np
import pytest
import tensorflow as tf
from tiers import slow_after

from keras_vattn import GaussianAttention, GaussianLatent, posterior_draws

X = np.random.default_rng(1).normal(size=(4, 3, 5)).astype("float32")


def compiled_model(**options):
    inputs = keras.Input((None, 5))
    attended = GaussianAttention(seed=1, name="attention", **options)(inputs, inputs)
    dropped = keras.layers.Dropout(0.5)(attended)
    latent = GaussianLatent(2, seed=2, name="latent", **options)(dropped)
    model = keras.Model(inputs, latent)
    model.compile("sgd", "mse")
    return model


def predict(model):
    return model.predict(X, verbose=0)


def test_predict_draws_inside_and_not_outside():
    model = compiled_model()
    mean = predict(model)
    with posterior_draws(model) as same:
        assert same is model
        first, second = predict(model), predict(model)
    assert np.any(first != mean)
    assert np.any(first != second)
    np.testing.assert_array_equal(predict(model), mean)
    np.testing.assert_allclose(model(X), mean, rtol=1e-6)


def test_dropout_stays_off():
    model = compiled_model(temperature=0.0)
    mean = predict(model)
    with posterior_draws(model):
        np.testing.assert_allclose(predict(model), mean, rtol=1e-6)


def test_a_seed_repeats_the_draw():
    model = compiled_model()
    draws = []
    for seed in (3, 3, 4, tf.constant([3, 0]), tf.constant([3, 1])):
        with posterior_draws(model, seed):
            draws.append(predict(model))
            np.testing.assert_allclose(model(X), draws[-1], rtol=1e-5, atol=1e-6)
            assert np.any(predict(model) != draws[-1])
    np.testing.assert_array_equal(draws[0], draws[1])
    np.testing.assert_array_equal(draws[0], draws[3])
    assert np.any(draws[0] != draws[2])
    assert np.any(draws[0] != draws[4])


def test_layers_draw_independently():
    """The noise of two layers with equal shapes is independent: the correlation is within 4 standard errors of 0."""
    inputs = keras.Input((5,))
    first, second = GaussianLatent(500), GaussianLatent(500)
    model = keras.Model(inputs, [first(inputs), second(inputs)])
    with posterior_draws(model, seed=1):
        one, two = (np.ravel(x) for x in model(np.zeros((4, 5))))
    assert abs(np.corrcoef(one, two)[0, 1]) < 4 / np.sqrt(one.size)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_seed_is_an_input_of_a_function(jit_compile):
    model = compiled_model()

    @tf.function(input_signature=[tf.TensorSpec(X.shape), tf.TensorSpec((), tf.int32)], jit_compile=jit_compile)
    def sample(x, seed):
        with posterior_draws(model, seed):
            return model(x, training=False)

    first, same, other = sample(X, 1), sample(X, 1), sample(X, 2)
    np.testing.assert_array_equal(first, same)
    assert np.any(first != other)
    with posterior_draws(model, seed=1):
        np.testing.assert_allclose(model(X, training=False), first, rtol=1e-4, atol=1e-5)


def test_temperature():
    latent = GaussianLatent(2, seed=2)
    mean, distances = latent(X), []
    for temperature in (0.5, 1.0, tf.constant(2.0)):
        with posterior_draws(latent, seed=1, temperature=temperature):
            distances.append(latent(X) - mean)
    np.testing.assert_allclose(distances[0] * 2, distances[1], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(distances[2], distances[1] * 2, rtol=1e-4, atol=1e-6)


def test_the_temperature_of_the_layer_holds_at_inference_only():
    latent = GaussianLatent(3, temperature=0.0, seed=1)
    mean = latent(X)
    with posterior_draws(latent):
        np.testing.assert_array_equal(latent(X), mean)
        assert np.any(latent(X, training=True) != mean)


def test_contexts_nest():
    latent = GaussianLatent(3)
    with posterior_draws(latent, seed=1):
        outer = latent(X)
        with posterior_draws(latent, seed=2):
            assert np.any(latent(X) != outer)
        np.testing.assert_array_equal(latent(X), outer)


def test_inner_models_draw_inside_the_context_only():
    inputs = keras.Input((None, 5))
    inner = keras.Model(inputs, GaussianAttention(seed=1)(inputs, inputs))
    outer_inputs = keras.Input((None, 5))
    outer = keras.Model(outer_inputs, inner(outer_inputs))
    mean = inner.predict(X, verbose=0)
    with posterior_draws(outer, seed=1):
        drawn = inner.predict(X, verbose=0)
    assert np.any(drawn != mean)
    np.testing.assert_array_equal(inner.predict(X, verbose=0), mean)


@pytest.mark.parametrize("options", slow_after([{}, {"jit_compile": True}, {"run_eagerly": True}]))
def test_batches_of_one_predict_have_different_noise(options):
    """A second context with the same seed repeats the noise. A direct call uses the noise of the first batch."""
    model = compiled_model()
    model.compile("sgd", "mse", **options)
    same = np.repeat(X[:1], 8, axis=0)
    with posterior_draws(model, seed=1):
        first, direct = model.predict(same, batch_size=2, verbose=0), model(same[:2], training=False)
    with posterior_draws(model, seed=1):
        repeated = model.predict(same, batch_size=2, verbose=0)
    np.testing.assert_array_equal(first, repeated)
    np.testing.assert_allclose(first[:2], direct, rtol=1e-4, atol=1e-5)
    batches = first.reshape(4, 2, -1)
    assert all(np.any(batches[i] != batches[j]) for i in range(4) for j in range(i))


@pytest.mark.slow
def test_a_seed_needs_one_step_per_execution():
    """Several steps per execution raise an error, because the steps would share their noise."""
    model = compiled_model()
    model.compile("sgd", "mse", steps_per_execution=2)
    with posterior_draws(model, 1), pytest.raises(ValueError, match="Received: 1 replicas, steps_per_execution=2"):
        predict(model)
    mean = predict(model)
    with posterior_draws(model):
        assert np.abs(predict(model) - mean).min() > 0
