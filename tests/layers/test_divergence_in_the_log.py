"""Tests that the KL enters the log only when it enters a loss."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import keras_vattn

X = np.random.default_rng(0).normal(size=(8, 5)).astype("float32")
NOTHING = {"loss": lambda y_true, y_pred: 0.0 * ops.mean(y_pred)}


def latent_model(**compiled):
    """Return a model whose only loss is the KL of its latent layer."""
    inputs = keras.Input((5,))
    model = keras.Model(inputs, keras_vattn.GaussianLatent(3, seed=1, name="z")(inputs))
    model.compile(keras.optimizers.SGD(0.0), **NOTHING, **compiled)
    return model


class Elsewhere(keras.callbacks.Callback):
    """Predicts, and calls the model on other data, in the middle of every epoch."""

    def on_train_batch_end(self, batch, logs=None):
        self.model.predict(100.0 * X, verbose=0)
        self.model(1000.0 * X)
        self.model(1000.0 * X, training=False)

    on_test_batch_end = on_train_batch_end


@pytest.mark.slow
def test_the_log_is_the_divergence_of_the_loss():
    model = latent_model(steps_per_execution=2)
    history = model.fit(X, X[:, :3], batch_size=2, epochs=2, verbose=0, callbacks=[Elsewhere()]).history
    np.testing.assert_allclose(history["z_kl"], history["loss"], rtol=1e-5)
    logs = model.evaluate(X, X[:, :3], batch_size=2, verbose=0, return_dict=True, callbacks=[Elsewhere()])
    np.testing.assert_allclose(logs["z_kl"], history["loss"][0], rtol=1e-5)


@pytest.mark.parametrize("eagerly", [False, True])
def test_calls_on_batches_of_different_sizes_log_the_loss(eagerly):
    inputs, latent = keras.Input((5,)), keras_vattn.GaussianLatent(3, seed=1, name="z")
    joined = keras.layers.Lambda(lambda x: ops.concatenate([x, 2.0 * x, x]))(inputs)
    model = keras.Model(inputs, latent(inputs) + ops.sum(latent(joined)))
    model.compile(keras.optimizers.SGD(0.0), **NOTHING, run_eagerly=eagerly)
    logs = model.evaluate(X, X[:, :3], batch_size=4, verbose=0, return_dict=True)
    assert logs["z_kl"] == pytest.approx(logs["loss"], rel=1e-6)


def test_divergences_number_layers_with_equal_names():
    """Layers of inner models have equal names, so the log numbers their KLs. The loss is the sum of the KLs."""

    def latent_part(scale):
        inputs = keras.Input((5,))
        return keras.Model(inputs, keras_vattn.GaussianLatent(3, seed=1, name="z")(scale * inputs))

    inputs, first, second = keras.Input((5,)), latent_part(1.0), latent_part(5.0)
    model = keras.Model(inputs, first(inputs) + second(inputs))
    model.compile(keras.optimizers.SGD(0.0), **NOTHING, run_eagerly=True)
    logs = model.evaluate(X, X[:, :3], batch_size=8, verbose=0, return_dict=True)
    model(X)
    expected = {name: float(x) for name, x in keras_vattn.divergences(model).items()}
    assert list(expected) == ["z_kl", "z_kl_1"] and expected["z_kl"] < expected["z_kl_1"]
    assert logs["loss"] == pytest.approx(sum(expected.values()), rel=1e-5)


@pytest.mark.slow
def test_divergences_of_the_last_call_are_unweighted_and_not_logged():
    inputs = keras.Input((5,))
    options = {"kl_weight": 0.3, "kl_reduction": "mean"}
    first, second = (keras_vattn.GaussianLatent(3, name=name, **options) for name in ("a", "b"))
    model = keras.Model(inputs, second(first(inputs)) + first(inputs))

    @tf.function
    def run_in_graph(x):
        return model(x, training=False), keras_vattn.divergences(model)

    for divergences in (run_in_graph(X)[1], (model(X), keras_vattn.divergences(model))[1]):
        q = first.posterior_distribution(X)
        one = tf.reduce_mean(0.5 * tf.reduce_sum(q.mean() ** 2 + q.variance() - 1 - tf.math.log(q.variance()), -1))
        assert set(divergences) == {"a_kl", "b_kl"}
        assert float(divergences["a_kl"]) == pytest.approx(2 * float(one), rel=1e-5)
    assert float(first.kl_tracker.count) == 0
    assert keras_vattn.divergences(keras.Sequential([keras.layers.Dense(2)])) == {}
