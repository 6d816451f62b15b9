import dataclasses

import numpy as np
import tensorflow as tf

from keras_vattn.metrics import _draws
from keras_vattn.support.validation import number, one_of

TESTS = ("welch", "paired")
QUANTITIES = ("probabilities", "log_probabilities")
SMALLEST = 2.0**-126  # the smallest normal float32


@dataclasses.dataclass(frozen=True, eq=False)
class PavpuResult:
    """Result of `keras_vattn.metrics.pavpu`.

    Attributes:
        n_ac: Number of accurate and certain examples, which is fractional if the accuracies are fractional.
        n_au: Number of accurate and uncertain examples.
        n_ic: Number of inaccurate and certain examples.
        n_iu: Number of inaccurate and uncertain examples.
        p_values: (N,), from the t-tests between the two most probable classes.
        certain: Boolean (N,), `True` if the p-value is below `significance`.
        predictions: (N,), the most probable class.
        num_draws: Number of samples. Compare only results with equal `num_draws`.

    Example:

    >>> result = keras_vattn.metrics.PavpuResult(6.0, 1.0, 1.0, 2.0, None, None, None, 20)
    >>> result.pavpu
    0.8
    """

    n_ac: float
    n_au: float
    n_ic: float
    n_iu: float
    p_values: np.ndarray
    certain: np.ndarray
    predictions: np.ndarray
    num_draws: int

    @property
    def pavpu(self):
        """(n_ac + n_iu) / (n_ac + n_au + n_ic + n_iu), in [0, 1]."""
        return (self.n_ac + self.n_iu) / (self.n_ac + self.n_au + self.n_ic + self.n_iu)


def pavpu(draws, labels=None, significance=0.05, test="welch", on="probabilities", accuracies=None):
    """Return PAvPU, the fraction of predictions that are accurate and certain, or inaccurate and uncertain.

    A t-test over the sampled probabilities compares the two classes with the largest mean probability. If the p-value
    is below `significance`, the prediction is certain (Cer_i = 1). The accuracy Acc_i is 0 or 1 with `labels`.

    **Compare only results with the same number of samples.** With more samples, the test detects smaller differences,
    so more predictions are certain. Use 20 or more samples. With two samples, the default in the code of Fan et al.
    2020, the test detects almost nothing.

    - `test="welch"` is the two-sample t-test of Fan et al. 2020, without the assumption of equal variances. This test
      treats the probabilities of the two classes as independent.
    - `test="paired"` tests the difference within each sample.
    - `on="log_probabilities"` tests log probabilities. Probabilities below 2^-126 are raised to 2^-126. With
      `test="paired"`, the result equals the paired test on logits in the code of Fan et al.
    - A deterministic model, whose samples are all equal, is certain unless the two classes tie (p is 0 or 1).
    - Classes with equal mean probability are ranked by index. If the first two tie, the prediction is uncertain.

    Formula:
        "PAvPU" = (n_("ac") + n_("iu")) / (n_("ac") + n_("au") + n_("ic") + n_("iu"))
        n_("ac") = sum_i "Acc"_i "Cer"_i, quad n_("au") = sum_i "Acc"_i (1 - "Cer"_i)
        n_("ic") = sum_i (1 - "Acc"_i) "Cer"_i, quad n_("iu") = sum_i (1 - "Acc"_i)(1 - "Cer"_i)

    Args:
        draws: Probabilities (M, N, C) from M >= 2 samples, for instance from `keras_vattn.posterior_predictive`.
        labels: Integers (N,), or `None` if `accuracies` are passed.
        significance: Threshold for the p-value, in (0, 1). Defaults to 0.05.
        test: `"welch"` or `"paired"`. Defaults to `"welch"`.
        on: `"probabilities"` or `"log_probabilities"`. Defaults to `"probabilities"`.
        accuracies: Acc_i in [0, 1] of each prediction, (N,), or of each possible class, (N, C); pass them instead of
            labels. For VQA: min(#humans who gave the answer / 3, 1). Defaults to `None`.

    Returns:
        A `PavpuResult` with `pavpu`, the four counts, and the p-value, certainty and class of each prediction.

    Raises:
        ValueError: If there are fewer than 2 draws, if an argument is out of range or unknown, or if both or neither of
            labels and accuracies are passed.

    Reference:
        Fan et al. 2020, appendix B.2.1; Mukhoti and Gal 2018, https://arxiv.org/abs/1811.12709.

    Example:

    >>> import numpy as np
    >>> sure = [[0.9, 0.1], [0.8, 0.2], [0.85, 0.15]]  # three draws
    >>> unsure = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]
    >>> result = keras_vattn.metrics.pavpu(np.stack([sure, unsure], axis=1), labels=[0, 1])
    >>> result.pavpu, result.n_ac, result.n_iu, result.p_values.round(4).tolist()
    (1.0, 1.0, 1.0, [0.0001, 0.6661])
    """
    one_of("test", test, TESTS)
    one_of("on", on, QUANTITIES)
    significance = number("significance", significance, above=0, below=1)
    if (labels is None) == (accuracies is None):
        raise ValueError(f"Pass either `labels` or `accuracies`. Received: labels={labels}, accuracies={accuracies}")
    draws = _draws.probabilities(draws, min_draws=2)
    num_draws, num_examples, num_classes = draws.shape
    mean = draws.mean(axis=0)
    order = np.argsort(-mean, axis=-1, kind="stable")
    predictions = order[:, 0]
    if labels is None:
        accuracy = _accuracy(accuracies, predictions, num_examples, num_classes)
    else:
        accuracy = (_draws.class_labels(labels, num_examples, num_classes) == predictions).astype("float64")
    first, second = (draws[:, np.arange(num_examples), order[:, rank]] for rank in (0, 1))  # (M, N)
    if on == "log_probabilities":
        first, second = (np.log(np.maximum(x, SMALLEST)) for x in (first, second))
    p_values = _welch(first, second) if test == "welch" else _paired(first, second)
    certain = p_values < significance
    return PavpuResult(
        n_ac=float(np.sum(accuracy * certain)),
        n_au=float(np.sum(accuracy * ~certain)),
        n_ic=float(np.sum((1.0 - accuracy) * certain)),
        n_iu=float(np.sum((1.0 - accuracy) * ~certain)),
        p_values=p_values,
        certain=certain,
        predictions=predictions,
        num_draws=num_draws,
    )


def _accuracy(accuracies, predictions, num_examples, num_classes):
    accuracies = np.asarray(accuracies, "float64")
    if accuracies.shape not in ((num_examples,), (num_examples, num_classes)):
        raise ValueError(
            f"`accuracies` must have shape ({num_examples},) or ({num_examples}, {num_classes}). "
            f"Received: accuracies.shape={accuracies.shape}"
        )
    if not ((accuracies >= 0) & (accuracies <= 1)).all():
        raise ValueError(
            f"`accuracies` must lie in [0, 1]. Received: values from {accuracies.min()} to {accuracies.max()}"
        )
    return accuracies if accuracies.ndim == 1 else accuracies[np.arange(num_examples), predictions]


def _welch(first, second):
    """Return the p-values of `scipy.stats.ttest_ind(first, second, equal_var=False)` over the first axis."""
    variances = [_variance(x) for x in (first, second)]
    total = variances[0] + variances[1]
    share = variances[0] / np.where(total > 0, total, 1.0)
    # Without `share`, the squares of small variances would underflow.
    freedom = (len(first) - 1) / (share**2 + (1.0 - share) ** 2)
    return _p_value(first.mean(axis=0) - second.mean(axis=0), total, len(first), freedom)


def _paired(first, second):
    """Return the p-values of `scipy.stats.ttest_rel(first, second)` over the first axis."""
    difference = first - second
    freedom = np.full(difference.shape[1], len(difference) - 1.0)
    return _p_value(difference.mean(axis=0), _variance(difference), len(difference), freedom)


def _variance(x):
    # Rounding may make `var` of equal numbers slightly positive.
    return np.where(x.max(axis=0) == x.min(axis=0), 0.0, x.var(axis=0, ddof=1))


def _p_value(difference, variance, num_draws, freedom):
    """Return the two-sided p-values of t-tests. Without variance, p is 1 for equal means, else 0."""
    scale = np.sqrt(variance / num_draws)
    varies = scale > 0
    with np.errstate(over="ignore"):
        t = difference / np.where(varies, scale, 1.0)
        p_values = tf.math.betainc(freedom / 2, np.full_like(freedom, 0.5), 1.0 / (1.0 + t**2 / freedom)).numpy()
    return np.where(varies, p_values, np.where(difference == 0, 1.0, 0.0))
