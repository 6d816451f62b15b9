"""Detect out-of-distribution examples using an uncertainty score."""

import numpy as np

from keras_vattn.support.validation import positive_number


def out_of_distribution_detection(in_scores, out_scores):
    """Measure how well a score detects out-of-distribution examples, whose scores should be larger.

    Possible scores are `predictive_entropy`, `mutual_information`, the `energy` of the logits, and the negative
    confidence `-draws.mean(0).max(-1)` (Hendrycks and Gimpel 2017).

    Formula:
        "auroc" = P(s_("out") > s_("in")) + 1/2 P(s_("out") = s_("in"))

    Args:
        in_scores: (N,), scores of in-distribution examples.
        out_scores: (K,), scores of out-of-distribution examples, which are the positive class.

    Returns:
        A dictionary of floats in [0, 1].

        - `"auroc"`: probability that an out-of-distribution example scores higher; 0.5 for an uninformative score.
        - `"aupr"`: average precision; K / (K + N) for an uninformative score.
        - `"fpr95"`: false positive rate at the threshold that detects 95 % of the out-of-distribution examples.

    Raises:
        ValueError: If a score is NaN, or an argument is empty.

    Reference:
        Hendrycks and Gimpel 2017, https://arxiv.org/abs/1610.02136, section 2; Liang et al. 2018,
        https://arxiv.org/abs/1706.02690, for the false positive rate.

    Example:

    >>> scores, other_scores = [0.1, 0.2, 0.3], [0.2, 0.9]
    >>> results = keras_vattn.metrics.out_of_distribution_detection(scores, other_scores)
    >>> {name: round(value, 3) for name, value in results.items()}
    {'auroc': 0.75, 'aupr': 0.75, 'fpr95': 0.667}
    """
    scores = [np.asarray(x, "float64") for x in (in_scores, out_scores)]
    if any(x.ndim != 1 or not x.size or np.isnan(x).any() for x in scores):
        raise ValueError(
            "`in_scores` and `out_scores` must be non-empty vectors without NaN. Received: "
            f"in_scores.shape={scores[0].shape} with {np.isnan(scores[0]).sum()} NaN, "
            f"out_scores.shape={scores[1].shape} with {np.isnan(scores[1]).sum()} NaN"
        )
    thresholds = np.unique(np.concatenate(scores))[::-1]
    false_positives, true_positives = (len(x) - np.searchsorted(np.sort(x), thresholds, side="left") for x in scores)
    recall, false_rate = true_positives / len(scores[1]), false_positives / len(scores[0])
    precision = true_positives / (true_positives + false_positives)
    return {
        "auroc": float(np.sum(np.diff(false_rate, prepend=0.0) * (recall - 0.5 * np.diff(recall, prepend=0.0)))),
        "aupr": float(np.sum(np.diff(recall, prepend=0.0) * precision)),
        "fpr95": float(false_rate[np.argmax(recall >= 0.95)]),
    }


def energy(logits, temperature=1.0):
    """Return the energy of logits, which is larger for examples that resemble none of the classes.

    For several draws, average the energies. Adding a constant to all logits changes the energy, but not the softmax.

    Formula:
        "energy" = - T log (sum_c exp("logits"_c / T)), quad T = "temperature"

    Args:
        logits: (..., C).
        temperature: T, above 0. Defaults to 1.0.

    Returns:
        An array (...,), in nats if T is 1.

    Raises:
        ValueError: If the temperature is not above 0.

    Reference:
        Liu et al. 2020, https://arxiv.org/abs/2010.03759, eq. 4.

    Example:

    >>> keras_vattn.metrics.energy([[8.0, 0.0], [0.0, 0.0]]).round(4).tolist()
    [-8.0003, -0.6931]
    """
    temperature = positive_number("temperature", temperature)
    return -temperature * np.logaddexp.reduce(np.asarray(logits, "float64") / temperature, axis=-1)
