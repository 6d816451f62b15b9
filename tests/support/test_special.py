import numpy as np
import pytest
import tensorflow as tf
from scipy import special as scipy_special

from keras_vattn.support import special


def test_bounded_exp_and_square():
    x = np.array([-100.0, 0.0, 1.0, 59.0, 60.0, 1e4])
    values = special.bounded_exp(tf.constant(x, tf.float32)).numpy()
    np.testing.assert_allclose(values[:5], np.exp(x[:5]), rtol=1e-5, atol=1e-40)
    np.testing.assert_allclose(values[5], np.exp(60.0) * (1 + 1e4 - 60.0), rtol=1e-5)
    np.testing.assert_allclose(special.bounded_square(tf.constant([-3.0, 1e13])), [9.0, 1e26], rtol=1e-6)
    assert float(special.bounded_square(tf.constant(1e19))) == pytest.approx(1e28 * (1 + np.log(1e5)) ** 2, rel=1e-5)


@pytest.mark.parametrize(("function", "largest"), [(special.bounded_exp, 1e8), (special.bounded_square, 1e30)])
def test_bounded_functions_have_a_gradient_everywhere(function, largest):
    x = tf.constant([-3.0, 3.0, 60.5, 1e4, largest])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    gradient = tape.gradient(y, x).numpy()
    assert np.isfinite(y).all()
    assert np.isfinite(gradient).all()
    assert (gradient != 0).all()


def test_exponential_gap_does_not_cancel():
    x = np.array([-1e4, -50.0, -1.0, -0.999, -0.3, -1e-3, -1e-6, 1e-6, 1e-3, 0.5, 0.999, 1.0, 20.0])
    x = x.astype("float32").astype("float64")
    expected = np.where(np.abs(x) < 1e-2, x**2 / 2 + x**3 / 6 + x**4 / 24, np.expm1(x) - x)
    for gap in (special.exponential_gap, special.bounded_exponential_gap):
        np.testing.assert_allclose(gap(tf.constant(x, tf.float32)), expected, rtol=2e-6)
    for log_scale in (-34.5, 0.0, 34.5):
        values = special.scaled_exponential_gap(tf.constant(log_scale, tf.float32), tf.constant(x, tf.float32))
        np.testing.assert_allclose(values, np.exp(log_scale) * expected, rtol=1e-5)


@pytest.mark.parametrize("bounded", [False, True])
def test_gradient_of_the_exponential_gap(bounded):
    x = tf.constant([-1e4, -3.0, -0.5, -1e-4, 0.0, 1e-4, 0.5, 3.0, 59.0] + bounded * [100.0, 1e4])
    function = special.bounded_exponential_gap if bounded else special.exponential_gap
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            gap = function(x)
        gradient = tape.gradient(gap, x)
    np.testing.assert_allclose(gradient, np.expm1(np.minimum(np.float64(x), 60.0)), rtol=1e-5)
    if bounded:
        np.testing.assert_allclose(gap[-2:], np.exp(60.0) * np.array([41.0, 1e4 - 59.0]), rtol=1e-5)
    np.testing.assert_allclose(outer.gradient(gradient, x)[:9], np.exp(np.float64(x[:9])), rtol=1e-5, atol=1e-30)


def test_log_gamma_remainder():
    log_x = np.linspace(-40.0, 40.0, 201).astype("float32").astype("float64")
    x = np.exp(log_x)
    stirling = 0.5 * np.log(2 * np.pi) - 0.5 * log_x + 1 / (12 * x)
    expected = np.where(x < 1e5, scipy_special.gammaln(x) - x * np.log(x) + x, stirling)
    np.testing.assert_allclose(
        special.log_gamma_remainder(tf.constant(log_x, tf.float32)), expected, rtol=1e-6, atol=2e-6
    )
    assert float(special.log_gamma_remainder(tf.constant(-1e4))) == 1e4


def test_the_gradient_of_log_gamma_remainder():
    log_x = tf.linspace(-40.0, 40.0, 201)
    with tf.GradientTape() as outer:
        outer.watch(log_x)
        with tf.GradientTape() as tape:
            tape.watch(log_x)
            remainder = special.log_gamma_remainder(log_x)
        gradient = tape.gradient(remainder, log_x)
    x = np.exp(log_x.numpy().astype("float64"))
    # For large x the difference cancels even in float64, so use its series.
    expected = np.where(x < 1e3, x * (scipy_special.digamma(x) - np.log(x)), -0.5 - 1 / (12 * x))
    np.testing.assert_allclose(gradient, expected, atol=2e-6)
    curvature = np.where(x < 1e3, expected + x**2 * scipy_special.polygamma(1, x) - x, 0.0)
    np.testing.assert_allclose(outer.gradient(gradient, log_x), curvature, atol=1e-4)


def test_log_ratio_does_not_cancel():
    x = np.exp(np.linspace(-10.0, 10.0, 41))[:, None]
    expected = np.array([-20.0, -1.0, -0.6, -1e-3, 0.0, 1e-3, 0.3, 1.0, 20.0])
    relative = np.expm1(expected) + 0.0 * x
    x, y, relative = (tf.constant(v, tf.float32) for v in (x, x * np.exp(expected), relative))
    np.testing.assert_allclose(special.log_ratio(x, y, relative) + 0.0 * x, expected + 0.0 * x, rtol=1e-6)


@pytest.mark.parametrize("low", [-20.0, -3.0, 3.0, 10.0])
def test_derivatives_of_log_gamma(low):
    """Compares derivatives with SciPy in float64, for x from exp(-20) to exp(16)."""
    log_x = np.linspace(low, low + 6.0, 301)
    x = np.exp(log_x).astype("float32")
    wide = x.astype("float64")
    series = -0.5 - 1 / (12 * wide), 0.5 + 1 / (6 * wide), 1 / (12 * wide)
    slope = np.where(wide > 1e3, series[0], wide * (scipy_special.digamma(wide) - np.log(wide)))
    trigamma = np.where(wide > 1e3, series[1], wide**2 * scipy_special.polygamma(1, wide) - wide)
    curvature = np.where(wide > 1e3, series[2], slope + trigamma)
    np.testing.assert_allclose(special.log_gamma_slope(x), slope, rtol=1e-6)
    np.testing.assert_allclose(special.scaled_trigamma(x), trigamma, rtol=1e-6)
    np.testing.assert_allclose(special.log_gamma_curvature(x), curvature, atol=1e-6)
    bent = special.log_gamma_bent(x) - 0.5 * np.log(x) + 0.5 * np.log(2.0 * np.pi) - 1.0
    np.testing.assert_allclose(bent, special.log_gamma_remainder(np.log(x)), rtol=3e-7, atol=3e-6)
