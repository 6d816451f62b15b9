import numpy as np
import pytest
import tensorflow as tf
from tensorflow_probability.python import distributions as tfd

import keras_vattn
from keras_vattn import PredictedContext

GENERATOR = np.random.default_rng(3)
LATENT = GENERATOR.normal(size=(6, 5, 4)).astype("float32")
TARGET = GENERATOR.normal(size=(6, 5, 3)).astype("float32")
MASK = np.arange(5) < np.array([5, 4, 3, 2, 1, 0])[:, None]


def distribution(layer, z):
    mean = z @ layer.mean_kernel.numpy() + layer.mean_bias.numpy()
    raw = z @ layer.log_scale_kernel.numpy() + layer.log_scale_bias.numpy()
    return tfd.MultivariateNormalDiag(mean, np.exp(layer.min_log_scale + np.log1p(np.exp(raw))))


def test_the_mean_and_the_density():
    layer = PredictedContext(3, min_log_scale=-0.7)
    np.testing.assert_allclose(layer(LATENT), distribution(layer, LATENT).mean(), rtol=1e-5, atol=1e-6)
    assert layer.losses == []
    distribution_of_layer, expected = layer.distribution(LATENT), distribution(layer, LATENT)
    np.testing.assert_allclose(distribution_of_layer.log_prob(TARGET), expected.log_prob(TARGET), rtol=1e-5)


@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_only_training_adds_the_term_to_the_loss(weight):
    layer = PredictedContext(3, kl_weight=weight, name="c")
    layer(LATENT, TARGET, mask=tf.constant(MASK), training=True)
    nats = -distribution(layer, LATENT).log_prob(TARGET).numpy()[MASK].sum() / 6
    assert float(layer.losses[0]) == pytest.approx(weight * nats, rel=1e-5)
    layer(LATENT, TARGET, mask=tf.constant(MASK), training=False)
    assert float(layer.losses[0]) == 0.0
    # The loss term is not part of a bound. The log shows the term unweighted, also at inference.
    assert keras_vattn.divergences(layer) == {}
    assert {x.name: float(x.result()) for x in layer.metrics} == {"c_nats": pytest.approx(nats, rel=1e-5)}


def test_an_informed_layer_draws_around_the_target_and_adds_a_divergence():
    layer, target = PredictedContext(3, min_log_scale=-0.7, informed=True, name="c"), tf.constant(TARGET)
    with tf.GradientTape() as tape:
        tape.watch(target)
        np.testing.assert_allclose(layer(LATENT, target, mask=tf.constant(MASK)), TARGET, rtol=1e-6)
        loss = layer.losses[0]
    p = distribution(layer, LATENT)
    q = tfd.MultivariateNormalDiag(TARGET, p.stddev())
    expected = tfd.kl_divergence(q, p).numpy()[MASK].sum() / 6
    assert float(loss) == pytest.approx(expected, rel=1e-4)
    moved = (TARGET - p.mean()) / p.variance() * MASK[..., None] / 6
    np.testing.assert_allclose(tape.gradient(loss, target), moved, rtol=1e-4, atol=1e-6)
    assert {name: float(x) for name, x in keras_vattn.divergences(layer).items()} == {
        "c_kl": pytest.approx(expected, rel=1e-4)
    }
    with keras_vattn.posterior_draws(layer, seed=1):
        drawn = layer(LATENT, TARGET)
    noise = (drawn - TARGET) / p.stddev()
    assert abs(np.mean(noise)) < 4 / np.sqrt(90) and abs(np.mean(noise**2) - 1) < 5 * np.sqrt(2 / 90)
    # Without a target, the result is the prediction.
    np.testing.assert_allclose(layer(LATENT), p.mean(), rtol=1e-5, atol=1e-6)


def test_no_gradient_to_the_target():
    layer, z, target = PredictedContext(3), tf.constant(LATENT), tf.constant(TARGET)
    with tf.GradientTape() as tape:
        tape.watch([z, target])
        layer(z, target, training=True)
        loss = layer.losses[0]
    z_gradient, target_gradient = tape.gradient(loss, [z, target])
    assert target_gradient is None and np.all(np.any(z_gradient != 0, axis=-1))


def test_sigma_has_a_minimum_and_can_rise_again():
    """Without a minimum, a perfect prediction would reduce sigma to 0. A sigma at the minimum can still grow."""
    layer = PredictedContext(3, min_log_scale=-1.5)
    layer.build((None, 4))
    layer.log_scale_bias.assign([-100.0] * 3)
    sigma = layer.distribution(np.zeros((1, 4), "float32")).stddev()
    np.testing.assert_allclose(sigma, np.full((1, 3), np.exp(-1.5)), rtol=1e-6)
    layer.log_scale_bias.assign([-2.0] * 3)
    with tf.GradientTape() as tape:
        layer(np.zeros((1, 4), "float32"), 9.0 * np.ones((1, 3), "float32"), training=True)
        loss = layer.losses[0]
    assert np.all(tape.gradient(loss, layer.log_scale_bias.value) < -1.0)


def test_draws():
    """Over 100 000 samples, means are within 4 standard errors and variances within 5; seed 2."""
    layer, count = PredictedContext(3, seed=2), 100_000
    drawn = layer(np.broadcast_to(LATENT[:1, 0], (count, 4)), training=True).numpy()
    expected = distribution(layer, LATENT[0, 0])
    sigma = expected.stddev().numpy()
    assert (np.abs(drawn.mean(0) - expected.mean()) < 4 * sigma / np.sqrt(count)).all()
    assert (np.abs(drawn.var(0) / sigma**2 - 1.0) < 5 * np.sqrt(2.0 / count)).all()
