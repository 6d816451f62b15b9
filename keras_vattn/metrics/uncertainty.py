"""Measure the likelihood, calibration and uncertainty of predictions from sampled class probabilities."""

import numpy as np

from keras_vattn.metrics import _draws
from keras_vattn.metrics.in_graph import predictive_statistics
from keras_vattn.metrics.perplexity import predictive_log_likelihood
from keras_vattn.support.validation import positive_integer


def negative_log_likelihood(draws, labels):
    """Return the mean negative log-likelihood of labels under the averaged probabilities, in nats.

    The result is infinite if a label has probability 0 in all samples. For sequences, use
    `keras_vattn.metrics.predictive_log_likelihood`.

    Formula:
        "NLL" = - 1/N sum_i log (1/M sum_m p_m(y_i | x_i))

    Args:
        draws: Probabilities (num_samples, N, C); pass a single prediction p as p[None].
        labels: Integers (N,).

    Returns:
        A float, in nats.

    Raises:
        ValueError: If the draws are not probabilities or a label is not in [0, C).

    Reference:
        Gal and Ghahramani 2016, https://arxiv.org/abs/1506.02142, section 4, for the mean over samples.

    Example:

    >>> draws = [[[0.5, 0.5]], [[0.25, 0.75]]]  # two draws of one example
    >>> round(keras_vattn.metrics.negative_log_likelihood(draws, [0]), 4)  # -log(0.375)
    0.9808
    """
    draws, labels = _labelled(draws, labels)
    with np.errstate(divide="ignore"):
        log_likelihoods = np.log(draws[:, np.arange(len(labels)), labels])
    return float(-np.mean(predictive_log_likelihood(log_likelihoods).numpy()))


def brier_score(draws, labels):
    """Return the Brier score of the averaged probabilities, from 0 (best) to 2.

    For two classes, this is twice the Brier score that counts only the positive class.

    Formula:
        "Brier" = 1/N sum_i sum_c (bar(p)(c | x_i) - [c = y_i])^2, quad bar(p)(c | x_i) = 1/M sum_m p_m(c | x_i)

    Args:
        draws: Probabilities (num_samples, N, C); pass a single prediction p as p[None].
        labels: Integers (N,).

    Returns:
        A float without unit.

    Raises:
        ValueError: If the draws are not probabilities or a label is not in [0, C).

    Reference:
        Brier 1950, Verification of forecasts expressed in terms of probability, Monthly Weather Review 78.

    Example:

    >>> keras_vattn.metrics.brier_score([[[0.5, 0.5], [1.0, 0.0]]], [0, 0])
    0.25
    """
    draws, labels = _labelled(draws, labels)
    error = draws.mean(axis=0)
    error[np.arange(len(labels)), labels] -= 1.0
    return float(np.mean(np.sum(error**2, axis=-1)))


def expected_calibration_error(draws, labels, num_bins=15):
    """Return the expected calibration error, the mean distance between accuracy and confidence.

    The confidence is the largest probability of the mean prediction. Predictions are grouped into bins by confidence.
    Bin b covers ((b - 1) / num_bins, b / num_bins] and contains n_b of the N predictions.

    Formula:
        "ECE" = sum_b n_b / N abs("accuracy"_b - "confidence"_b)

    Args:
        draws: Probabilities (num_samples, N, C); pass a single prediction p as p[None].
        labels: Integers (N,).
        num_bins: Number of bins of equal width. The result depends on this number. Defaults to 15.

    Returns:
        A float in [0, 1].

    Raises:
        ValueError: If the draws are not probabilities, a label is not in [0, C) or `num_bins` is not positive.

    Reference:
        Guo et al. 2017, https://arxiv.org/abs/1706.04599, eq. 3.

    Example:

    >>> draws = [[[0.75, 0.25], [0.75, 0.25], [0.75, 0.25], [0.25, 0.75]]]
    >>> keras_vattn.metrics.expected_calibration_error(draws, [0, 0, 1, 0])  # 0.75 - 2 / 4
    0.25
    """
    counts, confidence, accuracy = confidence_bins(draws, labels, num_bins)
    return float(np.sum(counts * np.abs(accuracy - confidence)) / np.sum(counts))


def confidence_bins(draws, labels, num_bins):
    """Return the number of examples, the mean confidence and the accuracy of each bin.

    The results are three arrays (num_bins,), with 0 for empty bins.
    """
    num_bins = positive_integer("num_bins", num_bins)
    confidence, errors = _confidence(*_labelled(draws, labels))
    bins = np.searchsorted(np.arange(1, num_bins) / num_bins, confidence)
    counts, *sums = (np.bincount(bins, weights, num_bins) for weights in (None, confidence, 1.0 - errors))
    return counts, *(total / np.maximum(counts, 1) for total in sums)


def predictive_entropy(draws):
    """Return the entropy of the averaged probabilities of each example, the total uncertainty.

    Formula:
        H[bar(p)] = - sum_c bar(p)(c) log bar(p)(c), quad bar(p)(c) = 1/M sum_m p_m(c)

    Args:
        draws: Probabilities (num_samples, N, C); pass a single prediction p as p[None].

    Returns:
        (N,), in nats, from 0 to log C.

    Raises:
        ValueError: If the draws are not probabilities.

    Reference:
        Gal et al. 2017, https://arxiv.org/abs/1703.02910.

    Example:

    >>> draws = [[[1.0, 0.0]], [[0.0, 1.0]]]
    >>> keras_vattn.metrics.predictive_entropy(draws).round(4).tolist()  # log 2
    [0.6931]
    """
    return predictive_statistics(_draws.probabilities(draws))["entropy"].numpy()


def mutual_information(draws):
    """Return the mutual information between class and sample (BALD) of each example.

    Mutual information measures how much the samples disagree. If all samples are equal, it is 0. If every sample
    assigns probability 1 to a class, it equals the predictive entropy.

    Formula:
        I = H[bar(p)] - 1/M sum_m H[p_m], quad bar(p)(c) = 1/M sum_m p_m(c)

    Args:
        draws: Probabilities (num_samples, N, C).

    Returns:
        (N,), in nats, from 0 to the predictive entropy.

    Raises:
        ValueError: If the draws are not probabilities.

    Reference:
        Houlsby et al. 2011, https://arxiv.org/abs/1112.5745, eq. 2.

    Example:

    >>> draws = [[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]]
    >>> keras_vattn.metrics.mutual_information(draws).round(4).tolist()
    [0.6931, 0.0]
    """
    return predictive_statistics(_draws.probabilities(draws))["mutual_information"].numpy()


def risk_coverage_area(draws, labels, uncertainty=None):
    """Return the area under the risk-coverage curve, small if wrong predictions are uncertain.

    Examples are sorted by increasing uncertainty. The risk at coverage k / N is the fraction of mistakes among the
    first k examples. If m of n examples with equal uncertainty are mistakes, each of these n examples counts as m / n
    mistakes. If all examples are equally uncertain, the area is the error rate.

    Formula:
        "area" = 1/N sum_(k=1)^N "risk"_k, quad "risk"_k = 1/k sum_(i=1)^k "mistake"_i

    Args:
        draws: Probabilities (num_samples, N, C); pass a single prediction p as p[None]. The predicted class has the
            largest mean probability.
        labels: Integers (N,).
        uncertainty: (N,), larger for less certain examples, such as the `p_values` of `keras_vattn.metrics.pavpu`,
            `predictive_entropy` or `mutual_information`. Defaults to minus the largest mean probability.

    Returns:
        A float in [0, 1]; lower is better.

    Raises:
        ValueError: If the draws are not probabilities, a label is not in [0, C), or the uncertainty has the wrong
            length or contains NaN.

    Reference:
        Geifman et al. 2019, https://arxiv.org/abs/1805.08206.

    Example:

    >>> draws = [[[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]]
    >>> round(keras_vattn.metrics.risk_coverage_area(draws, [0, 0, 0]), 4)  # (1/3) / 3
    0.1111
    """
    return float(np.mean(selective_risks(draws, labels, uncertainty)))


def selective_risks(draws, labels, uncertainty=None):
    """Return the risks at coverage 1/N, 2/N, ..., 1 as an array (N,)."""
    draws, labels = _labelled(draws, labels)
    confidence, errors = _confidence(draws, labels)
    uncertainty = -confidence if uncertainty is None else np.asarray(uncertainty, "float64")
    if uncertainty.shape != labels.shape or np.isnan(uncertainty).any():
        raise ValueError(
            f"`uncertainty` must have shape ({len(labels)},) and contain no NaN. "
            f"Received: uncertainty.shape={uncertainty.shape}, {np.isnan(uncertainty).sum()} NaN"
        )
    _, level, counts = np.unique(uncertainty, return_inverse=True, return_counts=True)
    expected_errors = np.repeat(np.bincount(level, weights=errors) / counts, counts)
    return np.cumsum(expected_errors) / np.arange(1, len(labels) + 1)


def _labelled(draws, labels):
    draws = _draws.probabilities(draws)
    return draws, _draws.class_labels(labels, *draws.shape[1:])


def _confidence(draws, labels):
    """Return the largest mean probability of each example, and 1.0 for each wrong prediction."""
    mean = draws.mean(axis=0)
    return mean.max(axis=-1), (mean.argmax(axis=-1) != labels).astype("float64")
