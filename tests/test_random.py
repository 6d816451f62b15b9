from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import special, stats

from keras_vattn import random

SEED = tf.constant([3, 4])
COUNT = 100_000


def test_uniforms_lie_inside_the_open_interval():
    values = random.uniform((1_000_000,), SEED).numpy()
    assert values.dtype == np.float32
    assert 0.0 < values.min() < 1e-5
    assert 1.0 - 1e-5 < values.max() < 1.0
    assert np.isfinite(np.log(-np.log1p(-values))).all()


def test_the_ends_of_the_interval(monkeypatch):
    """The uniform is 2**-24 if all bits are 0, and 1 - 2**-24 if all bits are 1. Both have finite logarithms."""
    for bits, expected in ((0, 2.0**-24), (-1, 1 - 2.0**-24)):
        monkeypatch.setattr(random, "_philox", lambda shape, *_, bits=bits: tf.fill(shape, tf.constant(bits, tf.int64)))
        assert float(random.uniform((1,), SEED)[0]) == pytest.approx(expected, rel=1e-7)
        assert abs(float(random.normal((1,), SEED)[0])) < 6.6
        assert -2.9 < float(random.gumbel((1,), SEED)[0]) < 16.7


@pytest.mark.parametrize("draw", [random.uniform, random.normal, random.gumbel])
def test_the_same_with_and_without_xla(draw):
    compiled = tf.function(lambda seed: draw((7, 5), seed), jit_compile=True)
    graph = tf.function(lambda seed: draw((7, 5), seed))
    np.testing.assert_allclose(compiled(SEED), draw((7, 5), SEED), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(graph(SEED), draw((7, 5), SEED), rtol=1e-6)


def test_distributions():
    """Kolmogorov-Smirnov statistics are below 1.95 / sqrt(n), the 0.1% point. Moments are within 4 standard errors."""
    uniform, normal, gumbel = (draw((COUNT,), SEED).numpy() for draw in (random.uniform, random.normal, random.gumbel))
    assert stats.kstest(uniform, "uniform").statistic < 1.95 / np.sqrt(COUNT)
    assert stats.kstest(normal, "norm").statistic < 1.95 / np.sqrt(COUNT)
    assert stats.kstest(gumbel, "gumbel_r").statistic < 1.95 / np.sqrt(COUNT)
    assert abs(uniform.mean() - 0.5) < 4 * np.sqrt(1 / 12 / COUNT)
    assert abs(normal.mean()) < 4 / np.sqrt(COUNT)
    assert abs(normal.var() - 1.0) < 4 * np.sqrt(2.0 / COUNT)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_tails_of_the_normals(seed):
    """Counts beyond 3 to 5 standard deviations, and four moments, of 4,000,000 normals are within 4 standard errors."""
    draws = random.normal((4_000_000,), random.as_seed(seed)).numpy().astype("float64")
    for distance in (3.0, 4.0, 4.5, 5.0):
        expected = len(draws) * stats.norm.sf(distance)
        for side in (draws, -draws):
            assert abs((side > distance).sum() - expected) < 4 * np.sqrt(expected)
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(draws**power) - moment) < 4 * np.sqrt(variance / len(draws))


def test_the_two_normals_of_a_pair_are_independent():
    """In 1,000,000 pairs, the angle is uniform and correlations are within 4 standard errors of 0."""
    first, second = np.split(random.normal((2_000_000,), SEED).numpy().astype("float64"), 2)
    for function in (lambda x: x, np.square, np.abs, np.sign):
        assert abs(np.corrcoef(function(first), function(second))[0, 1]) < 4e-3
    angle = np.arctan2(second, first) / (2.0 * np.pi) + 0.5
    assert stats.kstest(angle, "uniform").statistic < 1.95e-3


@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_any_number_of_normals(size):
    assert random.normal((size,), SEED).shape == (size,)
    assert random.normal((2, size), SEED).shape == (2, size)


def lifted_slope(concentration, noise):
    """Return `log_gamma` and its derivative in float64, from TensorFlow's `RandomGammaGrad` for Gamma(concentration +
    2) and from powers of two uniforms."""
    normals, first, second = (x.numpy().astype("float64") for x in noise)
    shape = np.full(normals.shape, concentration + 2.0)
    lower, upper = special.gammaincinv, special.gammainccinv
    draw = np.where(normals < 0, lower(shape, special.ndtr(normals)), upper(shape, special.ndtr(-normals)))
    slope = tf.raw_ops.RandomGammaGrad(alpha=tf.constant(shape), sample=tf.constant(draw)).numpy() / draw
    powers = first / concentration**2 + second / (concentration + 1.0) ** 2
    return np.log(draw) + first / concentration + second / (concentration + 1.0), slope - powers


CONCENTRATIONS = [1.0, 1.0 + np.exp(-10.0), 1.5, 2.0, 7.0, 100.0, np.exp(10.0)]


@pytest.mark.parametrize("concentration", CONCENTRATIONS)
def test_gamma_draws(concentration):
    """The Kolmogorov-Smirnov statistic is below 1.95 / sqrt(n). The mean gradient is trigamma within 4 standard
    errors."""
    noise = random.gamma_noise((COUNT,), random.as_seed(int(concentration)))
    repeated = tf.fill((COUNT,), tf.constant(concentration, tf.float32))
    with tf.GradientTape() as tape:
        tape.watch(repeated)
        draws = random.log_gamma(repeated, noise)
    gradient = tape.gradient(draws, repeated).numpy()
    draws = draws.numpy().astype("float64")
    assert stats.kstest(np.exp(draws), stats.gamma(concentration).cdf).statistic < 1.95 / np.sqrt(COUNT)
    expected, error = special.digamma(concentration), draws.std() / np.sqrt(COUNT)
    assert abs(draws.mean() - expected) < 4 * error
    error = gradient.std() / np.sqrt(COUNT)
    assert abs(gradient.mean() - special.polygamma(1, concentration)) < 4 * error


@pytest.mark.parametrize("concentration", [1.0, 1.1, 2.0, 5.0, 30.0, 1000.0])
def test_gamma_draws_are_quantiles_with_the_implicit_gradient(concentration):
    """Compares samples with the inverse distribution function and RandomGammaGrad in float64, for normals up to 6.6."""
    normals = tf.constant(np.linspace(-6.6, 6.6, 133), tf.float32)
    noise = (normals, *(tf.math.log(tf.fill(normals.shape, u)) for u in (0.3, 0.8)))
    repeated = tf.fill(normals.shape, tf.constant(concentration, tf.float32))
    with tf.GradientTape() as tape:
        tape.watch(repeated)
        draws = random.log_gamma(repeated, noise)
    expected, slope = lifted_slope(repeated.numpy()[0].astype("float64"), noise)
    # The error of a sample is converted to an error of the distribution function.
    density = stats.norm.pdf(normals.numpy()) * np.sqrt(concentration + 2.0)
    assert (np.abs(draws - expected) * density < 3e-6 + 1e-6 * np.sqrt(concentration)).all()
    np.testing.assert_allclose(draws, expected, rtol=0, atol=2e-3)
    gradient, inner = tape.gradient(draws, repeated).numpy(), np.abs(normals) <= 3.0
    np.testing.assert_allclose(gradient[inner], slope[inner], rtol=2e-4)
    np.testing.assert_allclose(gradient, slope, rtol=1e-2)


def test_the_second_derivative_of_a_gamma_draw():
    concentration, noise = tf.constant([1.0, 1.5, 2.0, 5.0, 30.0]), random.gamma_noise((5,), SEED)

    @tf.function
    def gradient(concentration):
        with tf.GradientTape() as tape:
            tape.watch(concentration)
            total = tf.reduce_sum(random.log_gamma(concentration, noise))
        return tape.gradient(total, concentration)

    with tf.GradientTape() as tape:
        tape.watch(concentration)
        slopes = gradient(concentration)
    step = 0.01 * concentration
    expected = (gradient(concentration + step) - gradient(concentration - step)) / (2.0 * step)
    np.testing.assert_allclose(tape.gradient(slopes, concentration), expected, rtol=2e-3)


def test_a_seed_is_a_draw():
    np.testing.assert_array_equal(random.normal((5,), SEED), random.normal((5,), SEED))
    assert np.any(random.normal((5,), SEED) != random.normal((5,), tf.constant([3, 5])))


def test_fold_in_gives_unrelated_draws():
    """Correlations of 50 streams of 1 000 normals are within 5 standard errors (1225 pairs)."""
    streams = np.stack([random.normal((1_000,), random.fold_in(SEED, number)) for number in range(50)])
    correlations = np.corrcoef(streams)[np.triu_indices(50, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(1_000)
    for number in (0, 1, -1, 2**31 - 1):
        for dtype in (tf.int32, tf.int64):
            np.testing.assert_array_equal(
                random.fold_in(SEED, number), random.fold_in(SEED, tf.constant(number, dtype))
            )


def test_seeds_in_a_row_give_unrelated_seeds_and_draws():
    """Consecutive seeds, as a seed generator returns them, and their folded seeds give uncorrelated normals."""
    seeds = [random.as_seed(number) for number in range(25)] + [tf.constant([3, number]) for number in range(1, 26)]
    streams = [random.normal((1_000,), seed) for seed in seeds]
    streams += [random.normal((1_000,), random.fold_in(seed, 0)) for seed in seeds]
    correlations = np.corrcoef(np.stack(streams))[np.triu_indices(100, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(1_000)


@pytest.mark.parametrize(
    "seed", [[3, 4], np.array([3, 4]), tf.constant([3, 4], tf.int64), tf.constant([3, 4], tf.uint32)]
)
def test_seeds_of_other_types(seed):
    """A seed gives the same noise as a NumPy integer, as a dtype of Keras's seed generators, and as a tensor."""
    for function in (random.uniform, random.normal, random.gumbel):
        np.testing.assert_array_equal(function((3,), seed), function((3,), SEED))
    np.testing.assert_array_equal(random.fold_in(seed, 7), random.fold_in(SEED, 7))


def test_fold_in_takes_an_integer():
    np.testing.assert_array_equal(random.fold_in(7, 1), random.fold_in(random.as_seed(7), 1))


def test_draw_seed_advances():
    generator, same = keras.random.SeedGenerator(7), keras.random.SeedGenerator(7)
    first, second = random.draw_seed(generator), random.draw_seed(generator)
    assert first.dtype == tf.int32
    assert np.any(first != second)
    np.testing.assert_array_equal(first, random.draw_seed(same))
    traced = tf.function(lambda: random.draw_seed(generator))
    assert np.any(traced() != traced())


def test_as_seed():
    np.testing.assert_array_equal(random.as_seed(5), [5, 0])
    np.testing.assert_array_equal(random.as_seed(tf.constant(5, tf.int64)), [5, 0])
    np.testing.assert_array_equal(random.as_seed(tf.constant([5, 6])), [5, 6])
    for large in (2**31, 2**32 - 1, -1, 2**40 + 3):
        assert random.as_seed(large).dtype == tf.int32
    with pytest.raises(ValueError, match=r"Received: seed=.*shape=\(3,\)"):
        random.as_seed(tf.constant([1, 2, 3]))


@pytest.mark.parametrize("seed", [1.5, True, "1", np.float32(2.0), [1, 2, 3]])
def test_a_seed_is_an_integer(seed):
    with pytest.raises(ValueError, match=r"A seed is an integer.*Received: seed="):
        random.as_seed(seed)


def test_all_bits_of_a_seed_count():
    seeds = [tuple(random.as_seed(seed).numpy()) for seed in (0, -1, 2**31, 2**32, 2**40, np.int64(2**40))]
    assert seeds == [(0, 0), (-1, 0), (-(2**31), 0), (0, 1), (0, 256), (0, 256)]


@pytest.mark.parametrize("draw", [random.uniform, partial(random.dropout_mask, rate=0.5)])
def test_seeds_can_be_vectorized(draw):
    seeds = tf.constant([[3, 4], [0, 0], [5, 6]])
    draws = tf.vectorized_map(lambda seed: draw((5,), seed=seed), seeds)
    np.testing.assert_array_equal(draws, [draw((5,), seed=seed) for seed in seeds])
