"""Confidence intervals and tests over seeds, and scores of subsets of a corpus."""

import typing
import warnings

import numpy as np
import scipy.stats


class Interval(typing.NamedTuple):
    """A mean with its 95% confidence interval; `low` and `high` are NaN for a single value."""

    mean: float
    low: float
    high: float


def corpus_score(metric, hypotheses, references):
    """Return a function of an array of rows: the corpus score of these translations by a metric of sacrebleu."""
    # A corpus score is computed from the sums of the counts of sentences. sacrebleu resamples the same way.
    counts = np.asarray(metric._extract_corpus_statistics(hypotheses, [references]), np.float64)
    return lambda rows: metric._compute_score_from_stats(counts[rows].sum(axis=0).tolist()).score


def mean_with_error(nats):
    """Return the mean of an array of nats and its standard error, in the format of the reports."""
    return {"nats": float(np.mean(nats)), "standard_error": float(scipy.stats.sem(nats))}


def mean_interval(values):
    """Return the `Interval` of the values of several seeds, a list of numbers, by Student's t distribution."""
    with warnings.catch_warnings():
        # A single value has no interval, and the interval of equal values has width 0.
        warnings.simplefilter("ignore", RuntimeWarning)
        interval = scipy.stats.ttest_1samp(values, 0.0).confidence_interval()
    return Interval(*map(float, (np.mean(values), *interval)))


def paired_interval(first, second):
    """Return the `Interval` of the differences first - second, for two lists of values at the same seeds."""
    if len(first) != len(second):
        raise ValueError(f"Pairs need the same seeds. Received: {len(first)} and {len(second)} values")
    return mean_interval(np.subtract(first, second))


def paired_p(first, second):
    """Return the two-sided p of the paired t-test over seeds: 1 if all differences are 0, NaN for a single difference
    and for equal differences other than 0."""
    differences = np.subtract(first, second)
    if len(differences) < 2 or np.ptp(differences) < 1e-12:
        return 1.0 if len(differences) > 1 and not differences.any() else float("nan")
    return float(scipy.stats.ttest_rel(first, second).pvalue)


def holm(p_values):
    """Return p-values corrected for their number (Holm 1979), in the same order; NaN stays NaN and is not counted."""
    p_values = np.asarray(p_values, np.float64)
    indices = np.flatnonzero(~np.isnan(p_values))
    order = indices[np.argsort(p_values[indices], kind="stable")]
    corrected = p_values.copy()
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(p_values[order] * np.arange(len(order), 0, -1)))
    return corrected.tolist()
