import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

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
    """All bits 0 and all bits 1 give 2**-24 and 1 - 2**-24, whose logarithms are finite."""
    for bits, expected in ((0, 2.0**-24), (-1, 1 - 2.0**-24)):
        monkeypatch.setattr(
            tf.random,
            "stateless_uniform",
            lambda shape, *_, bits=bits, **__: tf.fill(shape, tf.constant(bits, tf.int64)),
        )
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
    """Kolmogorov-Smirnov below 1.95 / sqrt(n), its 0.1% point; means within 4 standard errors."""
    uniform, normal, gumbel = (draw((COUNT,), SEED).numpy() for draw in (random.uniform, random.normal, random.gumbel))
    assert stats.kstest(uniform, "uniform").statistic < 1.95 / np.sqrt(COUNT)
    assert stats.kstest(normal, "norm").statistic < 1.95 / np.sqrt(COUNT)
    assert stats.kstest(gumbel, "gumbel_r").statistic < 1.95 / np.sqrt(COUNT)
    assert abs(uniform.mean() - 0.5) < 4 * np.sqrt(1 / 12 / COUNT)
    assert abs(normal.mean()) < 4 / np.sqrt(COUNT)
    assert abs(normal.var() - 1.0) < 4 * np.sqrt(2.0 / COUNT)


def test_a_seed_is_a_draw():
    np.testing.assert_array_equal(random.normal((5,), SEED), random.normal((5,), SEED))
    assert np.any(random.normal((5,), SEED) != random.normal((5,), tf.constant([3, 5])))


def test_fold_in_gives_unrelated_draws():
    """Correlations of 50 streams of 1 000 normals lie within 5 standard errors (1225 pairs)."""
    streams = np.stack([random.normal((1_000,), random.fold_in(SEED, number)) for number in range(50)])
    correlations = np.corrcoef(streams)[np.triu_indices(50, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(1_000)
    np.testing.assert_array_equal(random.fold_in(SEED, 1), random.fold_in(SEED, tf.constant(1, tf.int64)))


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("draw", [random.uniform, random.normal])
def test_a_stack_of_seeds_draws_what_each_seed_draws(draw, in_graph):
    stack = tf.stack([random.fold_in(SEED, number) for number in range(3)])
    function = tf.function(lambda seeds: draw((tf.shape(seeds)[0] * 2, 2, 5), seeds))
    drawn = function(stack) if in_graph else draw((6, 2, 5), stack)
    np.testing.assert_array_equal(drawn, np.concatenate([draw((2, 2, 5), seed) for seed in stack]))
    np.testing.assert_array_equal(random.fold_in(stack, 7), [random.fold_in(seed, 7) for seed in stack])


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
    with pytest.raises(ValueError, match=r"Received: shape=\(3,\)"):
        random.as_seed(tf.constant([1, 2, 3]))
