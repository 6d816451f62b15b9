"""Compute scalar functions in float32 where the plain formula would overflow or lose precision."""

import math

from keras import ops

from keras_vattn.support.gradients import custom_gradient

# `bounded_exp` grows linearly above this value. Otherwise sums over a batch could overflow.
LARGEST_EXPONENT = 60.0

# Coefficients of polynomials in w = 1 / (1 + x), accurate to 1e-7, from tests/helpers/coefficients.py.
_LOG_GAMMA = (0.0833322501, 2.11590083e-05, -0.00291223771, 0.000366444877, 0.000412548619, -0.000158715391)
_DIGAMMA = (0.50000003, 0.0833294942, 7.72282762e-05, -0.00889151494, 0.00176658577, 0.00180078118, -0.000869172849)
_TRIGAMMA = (0.500000085, 0.166653632, 0.000313229424, -0.0360002579, 0.00983710773, 0.00977262987, -0.00570000723)
_CURVATURE = (
    *(0.999999938, 0.416676582, 0.166410418, 0.0274348223),
    *(-0.043978282, 0.00147056183, 0.0151342902, -0.0059383468),
)

# Series of (exp(x) - 1 - x) / x^2 for |x| up to 1.
_EXPM1_MINUS = tuple(1.0 / math.factorial(power) for power in range(2, 10))


def polynomial(x, coefficients):
    """Return sum_k coefficients[k] x^k."""
    *lower, value = coefficients
    for coefficient in reversed(lower):
        value = value * x + coefficient
    return value


def derivative(coefficients):
    """Return the coefficients of d/dx `polynomial(x, coefficients)`."""
    return tuple(power * coefficient for power, coefficient in enumerate(coefficients))[1:]


def bounded_exp(x):
    """Return exp(x) for x up to 60, and exp(60) (x - 59) for larger x, where the gradient is exp(60)."""
    excess = ops.maximum(x - LARGEST_EXPONENT, 0.0)
    return ops.exp(ops.minimum(x, LARGEST_EXPONENT) + ops.log1p(excess))


def bounded_square(x, largest=1e14):
    """Return x^2 for |x| up to `largest`. For larger |x|, return (largest (1 + log(|x| / largest)))^2."""
    size = ops.abs(x)
    excess = ops.log(ops.maximum(size, largest) / largest)
    return ops.square(ops.minimum(size, largest) * (1.0 + excess))


def expm1_minus(x):
    """Return exp(x) - 1 - x for |x| up to 1, without cancellation."""
    return ops.square(x) * polynomial(x, _EXPM1_MINUS)


def gap_of_expm1(expm1, x):
    """Return exp(x) - 1 - x from exp(x) - 1 and x, with a relative error below 2e-6."""
    near = ops.square(x) * polynomial(x, _EXPM1_MINUS[:6])
    return ops.where(ops.abs(x) < 0.45, near, expm1 - x)


@custom_gradient
def exponential_gap(x):
    """Return exp(x) - 1 - x, at least 0, computed without cancellation. exp(x) must not overflow float32."""
    # If the gradient recomputed exp(x) - 1, training a decoder would be 10 % slower.
    growth = ops.expm1(x)
    return gap_of_expm1(growth, x), lambda upstream: upstream * growth


@custom_gradient
def bounded_exponential_gap(x):
    """Return exp(x) - 1 - x without overflow: for x > 60, exp(x) is replaced by exp(60) (x - 59)."""
    inside = ops.minimum(x, LARGEST_EXPONENT)
    growth = ops.expm1(inside)
    return gap_of_expm1(growth * (1.0 + (x - inside)), x), lambda upstream: upstream * growth


def scaled_exponential_gap(log_scale, x):
    """Return s (exp(x) - 1 - x) for s = exp(log_scale). The result is at least 0 and does not overflow."""
    # `exponential_gap(x)` could overflow, so add the exponents first.
    near = ops.abs(x) < 1.0
    scale = bounded_exp(log_scale)
    near_value = scale * expm1_minus(ops.where(near, x, 0.0))
    far = ops.where(near, 1.0, x)
    far_value = bounded_exp(log_scale + far) - scale - scale * far
    return ops.where(near, near_value, far_value)


@custom_gradient
def log_gamma_remainder(log_x):
    """Return log Gamma(x) - x log x + x for x = exp(log_x), where x may be too small or too large for a float32."""
    # `log_gamma_bent(x)` would be infinite if x underflows to 0.
    inside = ops.minimum(log_x, LARGEST_EXPONENT)
    x = ops.exp(inside)
    w = 1.0 / (1.0 + x)
    bent = (x + 0.5) * ops.softplus(-inside) + w * polynomial(w, _LOG_GAMMA)
    value = bent - 0.5 * log_x + (0.5 * math.log(2.0 * math.pi) - 1.0)

    def gradient(upstream):
        # Without the clip, extreme x would give NaN. In float32, the slope is constant outside [-60, 16].
        return upstream * log_gamma_slope(ops.exp(ops.clip(log_x, -60.0, 16.0)))

    return value, gradient


def soft_clamp(x, lowest, highest):
    """Clamp x smoothly to [lowest, highest]. Inside, the error is about exp(-distance to the nearer limit)."""
    upper = x > 0.5 * (lowest + highest)
    low, high = ops.where(upper, lowest, x), ops.where(upper, x, highest)
    # Each formula is accurate in only one half of the interval.
    from_below = lowest + ops.softplus(low - lowest) - ops.softplus(low - highest)
    from_above = highest - ops.softplus(highest - high) + ops.softplus(lowest - high)
    return ops.where(upper, from_above, from_below)


def log_ratio(x, y, relative):
    """Return log(y / x), without cancellation even if y is close to x. `relative` is (y - x) / x."""
    near = ops.abs(relative) < 0.5
    far_ratio = ops.where(near, 1.0, y / x)
    return ops.where(near, ops.log1p(ops.where(near, relative, 0.0)), ops.log(far_ratio))


def log_gamma_slope(x):
    """Return x (digamma(x) - log x), the derivative of `log_gamma_remainder`, from -1 at x = 0 to -1/2 at infinity."""
    w = 1.0 / (1.0 + x)
    return x * ops.log1p(1.0 / x) - 1.0 - (1.0 - w) * polynomial(w, _DIGAMMA)


def log_gamma_curvature(x):
    """Return d log_gamma_slope / d log x = x^2 trigamma(x) - x + log_gamma_slope(x): 0 at x = 0 and x = infinity."""
    w = 1.0 / (1.0 + x)
    return x * ops.log1p(1.0 / x) - (1.0 - w) * polynomial(w, _CURVATURE)


def scaled_trigamma(x):
    """Return x^2 trigamma(x) - x, which falls from 1 at x = 0 to 1/2 at infinity."""
    w = 1.0 / (1.0 + x)
    return w + ops.square(1.0 - w) * polynomial(w, _TRIGAMMA)


def log_gamma_bent(x):
    """Return log_gamma_remainder(log x) + log(x) / 2 + 1 - log(2 pi) / 2, which approaches 1 for large x."""
    w = 1.0 / (1.0 + x)
    return (x + 0.5) * ops.log1p(1.0 / x) + w * polynomial(w, _LOG_GAMMA)
