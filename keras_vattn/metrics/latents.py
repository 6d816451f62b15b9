"""Measure how much information a Gaussian latent variable contains about the input, to detect posterior collapse."""

import math

import numpy as np

from keras_vattn.support.validation import nonnegative_number, positive_integer

_ROWS = 512


def active_units(means, threshold=0.01):
    """Return the number of active latent units, whose posterior mean depends on the input.

    Formula:
        "active_units" = sum_d ["Var"_x(bb E_(z ~ q)[z_d | x]) > "threshold"]

    Args:
        means: Posterior means (N, Z), of N inputs.
        threshold: Minimum variance of a unit's posterior mean over the inputs. Defaults to 0.01.

    Returns:
        An integer, from 0 to Z.

    Raises:
        ValueError: If the means are not finite numbers of shape (N, Z).

    Reference:
        Burda et al. 2016, https://arxiv.org/abs/1509.00519, section 5.2.

    Example:

    >>> keras_vattn.metrics.active_units([[0.0, 1.0], [0.0, -1.0]])
    1
    """
    threshold = nonnegative_number("threshold", threshold)
    return int(np.sum(_finite("means", means).var(axis=0) > threshold))


def latent_mutual_information(means, log_scales, num_samples=1, seed=0):
    """Return the mutual information I(x; z) between inputs x and a Gaussian latent variable z, in nats.

    q(z | x) is the posterior and p(z) the prior. A large KL does not show that z contains information about x: the mean
    KL(q(z | x) || p(z)) is the sum of I(x; z) and KL(q(z) || p(z)). The Monte Carlo estimate cannot exceed log N. Use
    about a thousand inputs, or all inputs if there are fewer. For the disagreement between predictions, use
    `keras_vattn.metrics.mutual_information` instead.

    Formula:
        I(x; z) = 1/N sum_i bb E_(z ~ q(z | x_i))[log q(z | x_i) - log q(z)], quad q(z) = 1/N sum_i q(z | x_i)

    Args:
        means: Posterior means (N, Z), of N inputs.
        log_scales: Logarithms of the posterior standard deviations, (N, Z).
        num_samples: Number of samples of z per input. Defaults to 1.
        seed: Integer. Defaults to 0.

    Returns:
        A float, in nats. Sampling noise may make it slightly negative.

    Raises:
        ValueError: If means and log scales are not finite numbers of the same shape (N, Z).

    Reference:
        Hoffman and Johnson 2016, "ELBO surgery"; He et al. 2019, https://arxiv.org/abs/1901.05534, section 4.2.

    Example:

    >>> means = [[-9.0], [9.0]]  # z identifies the input
    >>> round(keras_vattn.metrics.latent_mutual_information(means, 2 * [[0.0]]), 3)  # log 2
    0.693
    """
    means, log_scales = _finite("means", means), _finite("log_scales", log_scales)
    if means.shape != log_scales.shape:
        raise ValueError(
            "`means` and `log_scales` must have the same shape. "
            f"Received: means.shape={means.shape}, log_scales.shape={log_scales.shape}"
        )
    # Without centring, the squares below would lose precision for large means.
    means = means - means.mean(axis=0)
    # With `seed` alone, the noise could equal inputs that a user generated with the same seed.
    generator, total = np.random.default_rng((seed, len(means))), 0.0
    precisions = np.exp(-2.0 * log_scales)
    constants = -0.5 * np.sum(precisions * means**2, axis=1) - np.sum(log_scales, axis=1)  # -Z/2 log(2 pi) cancels
    for _ in range(positive_integer("num_samples", num_samples)):
        noise = generator.standard_normal(means.shape)
        samples = means + np.exp(log_scales) * noise
        log_densities = -0.5 * np.sum(noise**2, axis=1) - np.sum(log_scales, axis=1)
        for start in range(0, len(means), _ROWS):
            z = samples[start : start + _ROWS]
            densities = constants - 0.5 * z**2 @ precisions.T + z @ (precisions * means).T
            aggregate = np.logaddexp.reduce(densities, axis=1) - math.log(len(means))
            total += float(np.sum(log_densities[start : start + _ROWS] - aggregate))
    return total / (num_samples * len(means))


def _finite(name, values):
    values = np.asarray(values)
    if values.ndim != 2 or 0 in values.shape or not np.all(np.isfinite(values)):
        raise ValueError(f"`{name}` must be finite numbers of shape (N, Z). Received: {name}.shape={values.shape}")
    return values.astype("float64")
