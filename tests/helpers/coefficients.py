"""Prints the polynomials of `keras_vattn.random.log_gamma` and `support.special`: python tests/helpers/coefficients.py

The polynomials are fitted to SciPy in float64. Each is printed with its largest error, the constant first.
"""

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial, chebyshev
from scipy import special

# Normals are within +-6.6. A Gamma sample of concentration c >= 1 is computed from one of concentration c + SHIFT.
LARGEST_NORMAL, SHIFT = 6.6, 2


def chebyshev_nodes(count, low, high):
    return low + (high - low) * (1.0 + np.cos(np.pi * (np.arange(count) + 0.5) / count)) / 2.0


def minimax(w, y, weight, degree):
    """Return a polynomial on [0, 1] of nearly least maximal weighted error (Lawson's iteration), and its error."""
    basis, lawson = chebyshev.chebvander(2.0 * w - 1.0, degree), np.ones_like(w)
    for _ in range(200):
        fitted = np.linalg.lstsq(basis * (weight * lawson)[:, None], y * weight * lawson, rcond=None)[0]
        error = np.abs(basis @ fitted - y) * weight
        lawson = lawson * (error / error.max() + 1e-6) ** 0.25
    return Chebyshev(fitted, domain=[0, 1]).convert(kind=Polynomial, domain=[-1, 1]).coef, error.max()


def stirling():
    """Yield polynomials in w = 1 / (1 + x), 0 < w < 1. Their errors are weighted by their factors in special.py."""
    w = chebyshev_nodes(2000, 1e-4, 1.0)
    z, far = 1.0 / w, w < 0.02
    value = special.gammaln(z) - (z - 0.5) * np.log(z) + z - 0.5 * np.log(2.0 * np.pi)
    value = np.where(far, 1 / 12 - w**2 / 360 + w**4 / 1260, value / w)
    first = np.where(far, 0.5 + w / 12 - w**3 / 120 + w**5 / 252, (np.log(z) - special.digamma(z)) / w)
    second = np.where(far, 0.5 + w / 6 - w**3 / 30 + w**5 / 42, (special.polygamma(1, z) - w) / w**2)
    joined = 1.0 + first - (1.0 - w) * second
    yield "_LOG_GAMMA", *minimax(w, value, w, 5)
    yield "_DIGAMMA", *minimax(w, first, 1.0 - w + 1e-3, 6)
    yield "_TRIGAMMA", *minimax(w, second, (1.0 - w) ** 2 + 1e-3, 6)
    yield "_CURVATURE", *minimax(w, joined, 1.0 - w + 1e-3, 7)


def sine():
    """Return the polynomial of sin(pi v / 4) / v in v^2, and its error."""
    v = np.sqrt(chebyshev_nodes(500, 0.0, 1.0))
    return minimax(v**2, np.sin(np.pi * v / 4.0) / v, v, 3)


def log_quantile(concentration, normal):
    """Return the log of the Gamma quantile at the probability of the normal."""
    lower, upper = special.gammaincinv, special.gammainccinv
    with np.errstate(all="ignore"):
        value = np.where(
            normal < 0, lower(concentration, special.ndtr(normal)), upper(concentration, special.ndtr(-normal))
        )
    return np.log(value)


def log_quantile_slope(concentration, normal, step=1e-4):
    """Return the derivative of `log_quantile` by the log concentration, from central differences of fourth order."""
    at = lambda factor: log_quantile(concentration * (1.0 + factor * step), normal)  # noqa: E731
    return (8.0 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12.0 * step)


def root_of_gap(log_ratio):
    """Return eta with eta^2 / 2 = x - 1 - log x and the sign of x - 1, for x = exp(log_ratio)."""
    x = np.exp(log_ratio)
    series = sum((-1) ** k * (x - 1.0) ** k / k for k in range(2, 9))
    gap = np.where(np.abs(x - 1.0) < 2e-2, series, x - 1.0 - log_ratio)
    return np.sign(x - 1.0) * np.sqrt(2.0 * gap)


def logarithm():
    """Return poly in log x = eta + eta^2 poly(eta) for eta^2 / 2 = x - 1 - log x, the first step of the quantile."""
    largest = 1.08 * LARGEST_NORMAL / np.sqrt(1 + SHIFT)
    eta = chebyshev_nodes(400, -largest, largest)
    low, high = np.full_like(eta, -60.0), np.full_like(eta, 6.0)
    for _ in range(200):
        middle = (low + high) / 2.0
        below = root_of_gap(middle) < eta
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    weight = np.exp(-0.25 * (1 + SHIFT) * eta**2) + 1e-2
    basis = np.stack([eta**power for power in range(10)], axis=1)
    return np.linalg.lstsq(basis * weight[:, None], (low / eta - 1.0) / eta * weight, rcond=1e-15)[0]


def quantile(log_polynomial, degrees=(6, 4, 2)):
    """Return poly_k in eta = v + sum_k poly_k(v) / c^(k + 1), v = normal / sqrt(c), fitted with slopes (Temme 1992)."""
    root, normal = np.meshgrid(
        chebyshev_nodes(40, 0.003, (1 + SHIFT) ** -0.5), chebyshev_nodes(121, -LARGEST_NORMAL, LARGEST_NORMAL)
    )
    q, v = root**2, root * normal
    target, slope = log_quantile(1.0 / q, normal) + np.log(q), log_quantile_slope(1.0 / q, normal)
    logarithm = Polynomial([0.0, 1.0, *log_polynomial])
    eta = root_of_gap(target)
    for _ in range(60):
        eta = eta - np.clip((logarithm(eta) - target) / logarithm.deriv()(eta), -1.0, 1.0)
    powers = [(k, j) for k, degree in enumerate(degrees) for j in range(degree + 1)]
    values = np.stack([(q ** (k + 1) * v**j / root).ravel() for k, j in powers], axis=1)
    slopes = values * [-(k + 1.0 + j / 2.0) for k, j in powers]
    weight = (np.exp(-0.25 * normal**2) + 1e-2).ravel()
    wanted_slope = ((slope - 1.0) / logarithm.deriv()(eta) + v / 2.0) / root
    wanted = np.concatenate([((eta - v) / root).ravel() * weight, 0.3 * wanted_slope.ravel() * weight])
    matrix = np.concatenate([values * weight[:, None], 0.3 * slopes * weight[:, None]])
    scale = np.abs(matrix).max(axis=0)
    fitted = np.linalg.lstsq(matrix / scale, wanted, rcond=1e-15)[0] / scale
    return np.split(fitted, np.cumsum([degree + 1 for degree in degrees])[:-1])


def main():
    for name, coefficients, error in [*stirling(), ("_SINE", *sine())]:
        print(f"{name} = {tuple(float(f'{c:.9g}') for c in coefficients)}  # {error:.0e}")
    log_polynomial = logarithm()
    print("_LOGARITHM =", tuple(float(f"{c:.9g}") for c in (0.0, 1.0, *log_polynomial)))
    for k, coefficients in enumerate(quantile(log_polynomial)):
        print(f"_QUANTILE[{k}] =", tuple(float(f"{c:.9g}") for c in coefficients))


if __name__ == "__main__":
    main()
