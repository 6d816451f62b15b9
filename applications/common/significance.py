"""Confidence intervals and significance tests over seeds, and corpus scores of resampled sentences."""

import typing
import warnings

import numpy as np
import scipy.stats


class Interval(typing.NamedTuple):
    """A mean and the limits of its 95% confidence interval. The limits of a single value are NaN."""

    mean: float
    low: float
    high: float


def corpus_score(metric, hypotheses, references):
    """Return a function from an array of sentence indices to the sacrebleu score of these sentences."""
    # sacrebleu resamples with these private methods: a corpus score needs only sums of counts.
    counts = np.asarray(metric._extract_corpus_statistics(hypotheses, [references]), np.float64)
    return lambda rows: metric._compute_score_from_stats(counts[rows].sum(axis=0).tolist()).score


def mean_with_error(nats):
    """Return the mean of an array in nats ("nats") and its standard error ("standard_error")."""
    return {"nats": float(np.mean(nats)), "standard_error": float(scipy.stats.sem(nats))}


def mean_interval(values):
    """Return an `Interval`: the mean of a list of values, with limits from Student's t distribution."""
    with warnings.catch_warnings():
        # SciPy warns for a single value and for equal values.
        warnings.simplefilter("ignore", RuntimeWarning)
        interval = scipy.stats.ttest_1samp(values, 0.0).confidence_interval()
    return Interval(*map(float, (np.mean(values), *interval)))


def paired_interval(first, second):
    """Return the `Interval` of the differences first - second between lists of values for equal seeds."""
    if len(first) != len(second):
        raise ValueError(f"Expected one pair of values per seed. Received: {len(first)} and {len(second)} values")
    return mean_interval(np.subtract(first, second))


def paired_p(first, second):
    """Return the two-sided p-value of a paired t-test over seeds.
    If all differences are 0, it is 1. For a single seed, or for equal differences other than 0, it is NaN."""
    differences = np.subtract(first, second)
    if len(differences) < 2 or np.ptp(differences) < 1e-12:
        return 1.0 if len(differences) > 1 and not differences.any() else float("nan")
    return float(scipy.stats.ttest_rel(first, second).pvalue)


def holm(p_values):
    """Correct p-values for multiple tests (Holm 1979). Their order is kept. NaN values are not counted as tests."""
    p_values = np.asarray(p_values, np.float64)
    indices = np.flatnonzero(~np.isnan(p_values))
    order = indices[np.argsort(p_values[indices], kind="stable")]
    corrected = p_values.copy()
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(p_values[order] * np.arange(len(order), 0, -1)))
    return corrected.tolist()
