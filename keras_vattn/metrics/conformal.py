"""Predict sets of classes that contain the true class with a required probability (conformal prediction)."""

import math

import numpy as np

from keras_vattn.metrics import _draws
from keras_vattn.support.validation import number, one_of

SCORES = ("lac", "aps")


def conformal_sets(calibration_draws, calibration_labels, draws, alpha=0.1, score="lac"):
    """Return, for each example, a set of classes that contains the true class with probability at least 1 - alpha.

    The method is split conformal prediction, which works with any model. The n calibration examples must not be used in
    training, and must be exchangeable with the new examples, for instance drawn from the same distribution. If all
    calibration scores differ, the probability is at most 1 - alpha + 1 / (n + 1). The probability is an average over
    examples and calibration sets. For a single class or for hard examples, the probability may be lower.

    - `score="lac"` gives the smallest sets on average. A set is empty if no class is probable enough.
    - `score="aps"` gives larger sets for uncertain predictions, which contain the true class of hard examples more
      often. The score of a class is the sum of its probability and the probabilities of all more probable classes. Of
      two equally probable classes, the first counts as more probable. The score is not randomized.

    If n is too small for alpha (k > n in the formula), every set contains all classes.

    Formula:
        "set"(x) = {c : s(x, c) <= "threshold"}
        "threshold" = "the " k "-th smallest of " s(x_1, y_1), ..., s(x_n, y_n), quad k = ceil((n + 1)(1 - alpha))
        s(x, c) = 1 - bar(p)(c | x) quad ("lac")
        s(x, c) = bar(p)(c | x) + sum_(j : bar(p)(j | x) > bar(p)(c | x)) bar(p)(j | x) quad ("aps")

    Args:
        calibration_draws: Probabilities (num_samples, n, C) with mean bar(p). Pass a single prediction p as p[None].
        calibration_labels: Integers (n,).
        draws: Probabilities (num_samples, N, C) of the new examples.
        alpha: Fraction of examples whose set may miss the true class, in (0, 1). Defaults to 0.1.
        score: `"lac"` or `"aps"`. Defaults to `"lac"`.

    Returns:
        Boolean (N, C), `True` if the class is in the set of the example.

    Raises:
        ValueError: If the draws are not probabilities or have different numbers of classes, a label is not in [0, C),
            alpha is not in (0, 1), or the score is unknown.

    Reference:
        Sadinle et al. 2019, https://arxiv.org/abs/1609.00451 (LAC); Romano et al. 2020,
        https://arxiv.org/abs/2006.02544 (APS).

    Example:

    >>> import numpy as np
    >>> draws = np.array([[[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]]])
    >>> new = [[[0.7, 0.3], [0.5, 0.5]]]
    >>> sets = keras_vattn.metrics.conformal_sets(draws, [0, 0, 0, 1], new, alpha=0.4)
    >>> sets.tolist()  # k = 3: a class needs a probability of 0.7
    [[True, False], [False, False]]
    """
    calibration, predicted = (_draws.probabilities(x).mean(axis=0) for x in (calibration_draws, draws))
    if calibration.shape[1] != predicted.shape[1]:
        raise ValueError(
            "`calibration_draws` and `draws` must have the same classes. "
            f"Received: {calibration.shape[1]} and {predicted.shape[1]} classes"
        )
    threshold = conformal_threshold(calibration_draws, calibration_labels, alpha, score)
    return _scores(predicted, score) <= threshold


def conformal_threshold(draws, labels, alpha=0.1, score="lac"):
    """Return the threshold of `conformal_sets`, which you can store instead of the calibration examples.

    With `score="lac"`, the set of an example contains all classes with a mean probability of at least 1 - threshold.

    Args:
        draws: Probabilities (num_samples, n, C) of the calibration examples.
        labels: Integers (n,).
        alpha: Fraction of examples whose set may miss the true class, in (0, 1). Defaults to 0.1.
        score: `"lac"` or `"aps"`. Defaults to `"lac"`.

    Returns:
        A float, infinite if there are too few calibration examples for alpha.

    Raises:
        ValueError: As in `conformal_sets`.

    Example:

    >>> draws = [[[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]]]
    >>> round(keras_vattn.metrics.conformal_threshold(draws, [0, 0, 0, 1], alpha=0.4), 3)
    0.3
    """
    alpha, score = number("alpha", alpha, above=0, below=1), one_of("score", score, SCORES)
    predicted = _draws.probabilities(draws).mean(axis=0)
    labels = _draws.class_labels(labels, *predicted.shape)
    scores = np.sort(_scores(predicted, score)[np.arange(len(labels)), labels])
    # Without `round`, the rank would be one too large for 10 * (1 - 0.7), which is slightly above 3 in float64.
    rank = math.ceil(round((len(labels) + 1) * (1.0 - alpha), 9))
    return float(scores[rank - 1]) if rank <= len(labels) else math.inf


def _scores(probabilities, score):
    """Return the scores s(x, c) of all classes, (N, C)."""
    if score == "lac":
        return 1.0 - probabilities
    order = np.argsort(-probabilities, axis=1, kind="stable")
    totals = np.cumsum(np.take_along_axis(probabilities, order, axis=1), axis=1)
    return np.take_along_axis(totals, np.argsort(order, axis=1), axis=1)
