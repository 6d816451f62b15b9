"""Tests that `keras_vattn.fast.FusedAdam` gives the results of `keras.optimizers.Adam`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vattn

# In the fused kernel 1 - beta_2, and therefore the velocities, are larger by a relative 5e-5.
RTOL, RTOL_OF_STATE = 2e-6, 1e-4
SHAPES = ((7, 4), (4, 3), (3,))
OPTIONS = {
    "plain": {},
    "rates": {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3},
    "global-norm": {"global_clipnorm": 0.5},
    "large-norm": {"global_clipnorm": 1e3},
    "norm": {"clipnorm": 0.5},
    "value": {"clipvalue": 0.1},
    "decay": {"weight_decay": 0.1},
    "schedule": {"learning_rate": keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)},
    "average": {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2},
    "accumulation": {"gradient_accumulation_steps": 2},
    "amsgrad": {"amsgrad": True},
}


def trained(make, sparse=False, jit_compile=False, dtype="float32", num_steps=4, **options):
    """Return weights and optimizer after a few steps on random gradients with a fixed seed."""
    generator = np.random.default_rng(0)
    weights = [keras.Variable(generator.normal(size=x), dtype=dtype, name=f"weight_{len(x)}{x[0]}") for x in SHAPES]
    optimizer = make(**{"learning_rate": 0.1, **options})
    optimizer.build(weights)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def step(gradients):
        if sparse:
            rows = tf.IndexedSlices(gradients[0][:3], tf.constant([5, 1, 5]), tf.constant(SHAPES[0]))
            gradients = [rows, *gradients[1:]]
        optimizer.apply(gradients)

    for _ in range(num_steps):
        step([tf.constant(generator.normal(size=shape), dtype) for shape in SHAPES])
    return weights, optimizer


@pytest.mark.parametrize(
    ("name", "jit_compile"),
    [*((name, False) for name in OPTIONS), pytest.param("global-norm", True, marks=pytest.mark.slow)],
)
def test_the_steps_equal_keras(name, jit_compile):
    weights, optimizer = trained(keras_vattn.fast.FusedAdam, jit_compile=jit_compile, **OPTIONS[name])
    expected, keras_optimizer = trained(keras.optimizers.Adam, **OPTIONS[name])
    assert [x.path.partition("/")[2] for x in optimizer.variables] == [
        x.path.partition("/")[2] for x in keras_optimizer.variables
    ]
    for one, other in zip(weights, expected, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=RTOL, atol=1e-6)
    for one, other in zip(optimizer.variables, keras_optimizer.variables, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=RTOL_OF_STATE, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"global_clipnorm": 0.5}])
def test_sparse_gradients(options):
    """The gradient of an embedding is sparse, and one of its rows occurs twice."""
    weights, _ = trained(keras_vattn.fast.FusedAdam, sparse=True, **options)
    expected, _ = trained(keras.optimizers.Adam, sparse=True, **options)
    for one, other in zip(weights, expected, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=RTOL, atol=1e-6)


def test_a_gradient_that_is_not_finite():
    """An infinite gradient makes the weights NaN, as in Keras, and is not clipped."""
    weight = keras.Variable(np.ones(3, "float32"))
    optimizer = keras_vattn.fast.FusedAdam(global_clipnorm=1.0)
    optimizer.apply([tf.constant([np.inf, 1.0, 1.0])], [weight])
    assert np.isnan(weight.numpy()).all()


@pytest.mark.slow
def test_in_fit_with_a_loss_scale_and_from_a_file(tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(keras.optimizers.LossScaleOptimizer(keras_vattn.fast.FusedAdam(0.01, global_clipnorm=1.0)), "mse")
    x, y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")
    losses = model.fit(x, y, epochs=3, verbose=0).history["loss"]
    assert losses == sorted(losses, reverse=True)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.optimizer.inner_optimizer, keras_vattn.fast.FusedAdam)
    more = [network.fit(x, y, verbose=0).history["loss"] for network in (model, loaded)]
    np.testing.assert_allclose(more[0], more[1], rtol=1e-6)


@pytest.mark.slow
def test_replicas(two_replicas):
    """The step on two replicas equals the step of Keras's optimizer."""
    weights = []
    for make in (keras.optimizers.Adam, keras_vattn.fast.FusedAdam):
        with two_replicas.scope():
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, kernel_initializer="ones")])
            model.compile(make(0.1, global_clipnorm=1.0), "mse")
        model.fit(np.eye(4, dtype="float32"), np.eye(4, 3, dtype="float32"), batch_size=4, epochs=2, verbose=0)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
