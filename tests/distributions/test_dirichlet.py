"""Tests the KL of Dirichlet distributions in float32 against the usual formula in float64."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_probability.python import distributions
from tiers import slow_after

from keras_vattn import DenseKeys, Dirichlet, DirichletPrior
from keras_vattn.distributions.dirichlet import dirichlet_divergence

KEYS = DenseKeys()


def divergence_and_gradients(a, b, keys=KEYS):
    """Return the KL of float32 concentrations (B, T, S), and its gradients with respect to log concentrations."""
    a, b = tf.constant(a), tf.constant(b)
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        divergence = dirichlet_divergence(a, b, keys)
    by_a, by_b = tape.gradient(divergence, [a, b])
    return divergence.numpy(), (a * by_a).numpy(), (b * by_b).numpy()


def float64_reference(a, b):
    a, b = tf.constant(a, tf.float64), tf.constant(b, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        divergence = distributions.kl_divergence(distributions.Dirichlet(a), distributions.Dirichlet(b))
    by_a, by_b = tape.gradient(divergence, [a, b])
    return divergence.numpy(), (a * by_a).numpy(), (b * by_b).numpy()


def concentrations(size, distance, center=None, seed=0):
    """Return two arrays of concentrations between exp(-10) and exp(10). `distance` is between their logarithms."""
    generator = np.random.default_rng(seed)
    shape = (4, 3, size)
    log_a = generator.uniform(-10, 10, shape) if center is None else center + generator.normal(size=shape)
    log_a = np.clip(log_a, -10, 10)
    log_b = np.clip(log_a + distance * generator.normal(size=shape), -10, 10)
    return np.exp(log_a).astype("float32"), np.exp(log_b).astype("float32")


CENTERS = [None, -9.5, -2.0, 0.0, 2.0, 9.5]
DISTANCES = [1e-3, 1e-2, 0.15, 1.0, 5.0, 20.0]
# For any two of these parameters, every pair of values occurs: size, distance, center.
PAIRS = [((2, 64, 512)[(i + j) % 3], x, y) for i, x in enumerate(DISTANCES) for j, y in enumerate(CENTERS)]


@pytest.mark.parametrize(("size", "distance", "center"), PAIRS)
def test_accuracy_in_float32(size, distance, center):
    """The KL has an error of at most 2e-5, or 5e-4 for two keys, where one may dominate; gradients 8 ulp of a and b."""
    a, b = concentrations(size, distance, center)
    (value, *gradients), (expected, *expected_gradients) = divergence_and_gradients(a, b), float64_reference(a, b)
    assert value.dtype == np.float32
    assert (value >= 0).all()
    np.testing.assert_allclose(value, expected, rtol=5e-4 if size == 2 else 2e-5, atol=1e-9)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        largest = np.abs(expected_gradient).max(axis=-1, keepdims=True)
        assert (np.abs(gradient - expected_gradient) <= 1e-4 * largest + 1e-6 * (a + b + 1.0)).all()


@pytest.mark.parametrize("size", [2, 64, 512])
def test_close_to_p(size):
    """The KL is 1e-7 to 1e-2 nats. The usual formula in float32 would give values down to -6 nats."""
    for seed in range(5):
        a, b = concentrations(size, 1e-4, 9.5, seed)
        value, expected = divergence_and_gradients(a, b)[0], float64_reference(a, b)[0]
        np.testing.assert_allclose(value, expected, rtol=5e-4)
        assert (divergence_and_gradients(a, a)[0] == 0.0).all()


@pytest.mark.parametrize(("center", "other"), [(9.5, -9.5), (-9.5, 9.5)])
def test_far_from_p(center, other):
    """The concentrations of one distribution are 1e8 times those of the other."""
    (a, _), (b, _) = concentrations(64, 0.0, center), concentrations(64, 0.0, other, seed=1)
    (value, *gradients), (expected, *expected_gradients) = divergence_and_gradients(a, b), float64_reference(a, b)
    np.testing.assert_allclose(value, expected, rtol=5e-6)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(gradient, expected_gradient, rtol=2e-5, atol=1e-6 * np.abs(expected_gradient).max())


def test_one_valid_key_has_no_divergence():
    mask = tf.constant([[[False, True, False]]])
    for distance in (0.1, 5.0):
        a, b = concentrations(3, distance)
        value, *gradients = divergence_and_gradients(a, b, DenseKeys(mask))
        np.testing.assert_allclose(value, 0.0, atol=1e-6)
        for gradient, x in zip(gradients, (a, b), strict=True):
            assert (gradient[..., [0, 2]] == 0.0).all()
            assert (np.abs(gradient) <= 1e-6 * (x + b + a)).all()


@pytest.mark.parametrize("prior", [DirichletPrior(0.3), DirichletPrior()])
def test_a_broadcast_prior(prior):
    """A prior that is a number, or one row for all queries, gives the KL and the gradient of the repeated prior."""
    generator = np.random.default_rng(0)
    alignment, logits = Dirichlet(), tf.constant(generator.normal(size=(2, 3, 5)), tf.float32)
    log_psi = tf.constant(generator.normal(size=(2, 1, 5)), tf.float32) if prior.reads_keys else None
    with tf.GradientTape() as tape:
        tape.watch([logits, *([] if log_psi is None else [log_psi])])
        q, p = alignment.posterior(logits, KEYS), prior.distribution(alignment, log_psi, logits, KEYS)
        divergence = q.kl_divergence(p)
    source = logits if log_psi is None else log_psi
    gradient = tape.gradient(divergence, source)
    with tf.GradientTape() as tape:
        tape.watch(source)
        q, p = alignment.posterior(logits, KEYS), prior.distribution(alignment, log_psi, logits, KEYS)
        expected = dirichlet_divergence(q.concentration, p.concentration + tf.zeros_like(logits), KEYS)
    np.testing.assert_allclose(divergence, expected, rtol=1e-6)
    np.testing.assert_allclose(gradient, tape.gradient(expected, source), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("in_graph", slow_after([False, True]))
def test_second_derivatives(in_graph):
    a, b = (tf.constant(x, tf.float64) for x in concentrations(5, 1.0, 0.5))

    def second(divergence, a, b):
        def first(a, b):
            with tf.GradientTape() as tape:
                tape.watch([a, b])
                total = tf.reduce_sum(divergence(a, b))
            return tape.gradient(total, [a, b])

        first = tf.function(first) if in_graph else first
        with tf.GradientTape() as tape:
            tape.watch([a, b])
            by_a, by_b = first(a, b)
            value = tf.reduce_sum(by_a**2) + tf.reduce_sum(tf.sin(by_b))
        return tape.gradient(value, [a, b])

    plain = lambda a, b: distributions.kl_divergence(distributions.Dirichlet(a), distributions.Dirichlet(b))  # noqa: E731
    ours = second(lambda a, b: dirichlet_divergence(a, b, KEYS), tf.cast(a, tf.float32), tf.cast(b, tf.float32))
    for value, expected in zip(ours, second(plain, a, b), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-4)
